"""How a plan's clip norms and noise are applied: all that the guarantee rests on, besides the plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from nestegg.checks import one_of, whole
from nestegg.errors import InputError
from nestegg.mechanism import CLIPPINGS
from nestegg.mechanism.randomness import Randomness
from nestegg.planning import Plan
from nestegg.training.adaptive import AdaptiveClipping
from nestegg.training.side import SideStatistics

CLIP_UNITS = ("gradient", "update")


@dataclass(frozen=True)
class Mechanics:
    """How the plan's clip norms and noise apply to updates.

    Attributes:
        clipping: per-layer clips each of the m layers to c_n^t/√m, flat the whole to c_n^t.
        clip_unit: gradient reads clip norms as norms of the accumulated gradient, the update divided by λ_t;
            update reads them as norms of the update itself.
        colluders: clients against whose joint knowledge of their own noise the guarantee shall hold.
        adaptive: controller of the method adaptive-clipping; others have none.
        randomness: the seed of all that is public, and whether cohorts and noise, which are secrets, follow from it
            too: then the result is not for release.
        side: what clients say besides their updates, within the same clip norms.

    >>> Mechanics(randomness=Randomness(seed=7, reproducible=True)).clipping
    'per-layer'
    """

    clipping: str = "per-layer"
    clip_unit: str = "gradient"
    colluders: int = 0
    adaptive: AdaptiveClipping = field(default_factory=AdaptiveClipping)
    randomness: Randomness = field(default_factory=Randomness)
    side: SideStatistics = field(default_factory=SideStatistics)

    def __post_init__(self) -> None:
        one_of("clipping", self.clipping, CLIPPINGS)
        one_of("clip_unit", self.clip_unit, CLIP_UNITS)
        whole("colluders", self.colluders, 0)

    def check(self, plan: Plan) -> None:
        """Refuse a plan that these mechanics cannot carry out."""
        if self.colluders >= plan.clients:
            raise InputError(f"colluders = {self.colluders} must be fewer than the {plan.clients} clients.")
        if (controller := self.controller(plan)) is not None:
            controller.check(plan)
            if self.side.learns_clip_norm:
                raise InputError(f"method = {plan.method!r} learns its clip norm by itself: clip_share must be 0.")

    def controller(self, plan: Plan) -> AdaptiveClipping | None:
        """Return what learns the clip norm, if the plan's method does."""
        return self.adaptive if plan.about.learns_clip_norm else None

    def said(self, plan: Plan) -> SideStatistics:
        """Return what clients say besides their updates: nothing, where nothing would hide it."""
        return self.side if plan.is_private else SideStatistics()
