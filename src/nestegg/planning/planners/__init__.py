"""Planners: each a frozen value that holds its own parameters, and decides when every group spends how much.

A planner decides nothing but sampling rates and noise multipliers. What follows from them, the mean σ^t and the clip
norms c_n^t, is the same for all planners and made in `methods`.
"""

from nestegg.planning.planners.no_noise import NoNoise
from nestegg.planning.planners.optimal import Optimal
from nestegg.planning.planners.rest import Each, Planner, Rest
from nestegg.planning.planners.shaped import SHAPES, Shaped
from nestegg.planning.planners.spend_as_you_go import COMPOSITIONS, SpendAsYouGo
from nestegg.planning.planners.uniform import Uniform

__all__ = [
    "COMPOSITIONS",
    "SHAPES",
    "Each",
    "NoNoise",
    "Optimal",
    "Planner",
    "Rest",
    "Shaped",
    "SpendAsYouGo",
    "Uniform",
]
