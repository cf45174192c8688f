"""Federated training: one loop, engines that train a cohort, and the controller of adaptive clipping."""

from nestegg.training.adaptive import AdaptiveClipping
from nestegg.training.engines import ENGINES
from nestegg.training.local import LocalTraining
from nestegg.training.loop import Federation, Mechanics, RoundReport, State, train

__all__ = ["ENGINES", "AdaptiveClipping", "Federation", "LocalTraining", "Mechanics", "RoundReport", "State", "train"]
