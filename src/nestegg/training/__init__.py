"""Federated training: one loop, engines that train a cohort, and the controller of adaptive clipping."""

from nestegg.training.adaptive import AdaptiveClipping
from nestegg.training.callbacks import Callback, told
from nestegg.training.evaluation import Evaluation
from nestegg.training.local import LocalTraining
from nestegg.training.loop import Federation, train
from nestegg.training.mechanics import Mechanics
from nestegg.training.performance import ENGINES, Performance, cores
from nestegg.training.reports import RoundReport, State
from nestegg.training.side import SideStatistics

__all__ = [
    "ENGINES",
    "AdaptiveClipping",
    "Callback",
    "Evaluation",
    "Federation",
    "LocalTraining",
    "Mechanics",
    "Performance",
    "RoundReport",
    "SideStatistics",
    "State",
    "cores",
    "told",
    "train",
]
