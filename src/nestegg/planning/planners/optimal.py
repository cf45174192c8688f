"""The computed schedule: the noise that reaches the final model, made as small as budgets allow (docs/theory.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestegg.accounting import Array
from nestegg.errors import InputError
from nestegg.planning.influence import forgetting, read_influence, resampled

if TYPE_CHECKING:
    from nestegg.planning.schedule import Schedule
    from nestegg.planning.setting import Setting

# A round that hardly matters counts as this share of the one that matters most, so that its noise stays finite.
FLOOR = 1e-3


@dataclass(frozen=True)
class Optimal:
    """Noise σ_n^t ∝ a_t^(−1/2), the same shape for everybody, scaled to everybody's budget.

    a_t = w_t c_t is how far a unit of round t's noise is from nothing in the final model: c_t is the clip norm in
    force, which anneals with the learning rate where clip norms are norms of gradients, and w_t is how much of it is
    not corrected by later rounds.

    Attributes:
        memory: κ, by which rounds forget noise: w_t = exp(−κ R_t), R_t being the share of all learning rates that
            comes after round t. 0 forgets nothing.
        influence: w_t as it was measured, of each round, or the file of `nestegg influence`; then κ is not used.
        spare: the share of all work that clients are spared, by being sampled less in rounds that matter little. That
            costs noise, see docs/theory.md; 0 is best.

    >>> from nestegg import Budget, Group, plan
    >>> made = plan([Group("all", 100, Budget(10.0))], rounds=4, method=Optimal(memory=0.0), local=[4.0, 1.0, 1.0, 1.0])
    >>> noise = made.groups[0].noise_multiplier
    >>> [round(sigma / noise[0], 2) for sigma in noise], made.accountant
    ([1.0, 2.0, 2.0, 2.0], 'gaussian')
    """

    memory: float = 2.0
    influence: str | Sequence[float] | None = None
    spare: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.memory < np.inf:
            raise InputError(f"memory = {self.memory!r} must be a number from 0 on.")
        if not 0.0 <= self.spare < 1.0:
            raise InputError(f"spare = {self.spare!r} must be at least 0 and below 1.")
        if self.influence is not None:
            object.__setattr__(self, "influence", read_influence(self.influence))

    def schedule(self, setting: Setting) -> Schedule:
        """Return the schedule by which the least noise reaches the model, nobody over budget and nothing left."""
        matters = self.matters(setting)
        rates = self._rates(matters, setting.spending_rate)
        # Noise of the mean update is σ/q: where fewer take part, the same σ weighs more.
        return setting.calibrated(rates, (matters / rates) ** -0.5)

    def matters(self, setting: Setting) -> Array:
        """Return a_t of every round, relative to the largest, never below `FLOOR`."""
        kept = forgetting(self.memory, setting.pace.learning_rate)
        if self.influence is not None:
            kept = resampled(np.array(self.influence, np.float64), setting.rounds)
        a = kept * np.array(setting.clip_scale)
        return np.asarray(np.maximum(a / a.max(), FLOOR))

    def _rates(self, matters: Array, most: float) -> Array:
        """Sampling rates in proportion to what rounds matter, none above `most`, on average less by what is spared."""
        if not self.spare:
            return np.full_like(matters, most)
        low, high = 0.0, 1.0 / float(matters.min())
        for _ in range(60):
            middle = (low + high) / 2.0
            too_many = np.minimum(middle * matters, 1.0).mean() > 1.0 - self.spare
            low, high = (low, middle) if too_many else (middle, high)
        return most * np.minimum(high * matters, 1.0)
