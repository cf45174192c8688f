"""Noise in proportion to a given curve over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestegg.accounting import Array
from nestegg.checks import one_of, positive
from nestegg.errors import InputError
from nestegg.planning.setting import MAX_RATIO

if TYPE_CHECKING:
    from nestegg.planning.plan import GroupPlan
    from nestegg.planning.schedule import Schedule
    from nestegg.planning.setting import Setting

SHAPES = ("geometric", "linear", "cosine")


@dataclass(frozen=True)
class Shaped:
    """Noise that follows a curve, scaled for every group by one root so that it just meets its budget.

    Attributes:
        shape: geometric, linear or cosine, from 1 to `end_ratio`; or the relative noise of every round.
        end_ratio: of a named shape: noise of the last round over that of the first.

    >>> from nestegg import Budget, Group, plan
    >>> made = plan([Group("all", 100, Budget(10.0))], rounds=3, method=Shaped("linear", end_ratio=0.5))
    >>> [round(sigma / made.groups[0].noise_multiplier[0], 2) for sigma in made.groups[0].noise_multiplier]
    [1.0, 0.75, 0.5]
    """

    shape: str | Sequence[float] = "geometric"
    end_ratio: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.shape, str):
            numbers = tuple(positive(f"shape[{t}]", value) for t, value in enumerate(self.shape, 1))
            object.__setattr__(self, "shape", numbers)
            if not numbers or max(numbers) > MAX_RATIO * min(numbers):
                span = f"goes from {min(numbers):g} to {max(numbers):g}" if numbers else "is empty"
                raise InputError(f"shape {span}; a factor of {MAX_RATIO:g} is allowed.")
            return
        one_of("shape", self.shape, SHAPES)
        if not 1.0 / MAX_RATIO <= positive("end_ratio", self.end_ratio) <= MAX_RATIO:
            raise InputError(f"end_ratio = {self.end_ratio!r} must lie between {1.0 / MAX_RATIO:g} and {MAX_RATIO:g}.")

    def schedule(self, setting: Setting) -> Schedule:
        """Return the curve at the spending rate, calibrated."""
        return setting.calibrated(setting.spending_rate, self.relative_noise(setting.rounds))

    def rest(self, after: int, row: GroupPlan) -> Shaped:
        """Return what is left of the group's own curve."""
        return Shaped(row.noise_multiplier[after:])

    def relative_noise(self, rounds: int) -> Array:
        """Return the relative noise of every round.

        >>> Shaped("linear", 0.5).relative_noise(3).tolist()
        [1.0, 0.75, 0.5]
        """
        if not isinstance(self.shape, str):
            if len(self.shape) != rounds:
                raise InputError(
                    f"shape has {len(self.shape)} numbers; it must have one for each of the {rounds} rounds."
                )
            return np.array(self.shape)
        progress = np.linspace(0.0, 1.0, rounds)
        if self.shape == "geometric":
            return np.asarray(self.end_ratio**progress)
        if self.shape == "linear":
            return 1.0 + (self.end_ratio - 1.0) * progress
        return self.end_ratio + (1.0 - self.end_ratio) * (1.0 + np.cos(np.pi * progress)) / 2.0
