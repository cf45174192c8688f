"""The computed schedule: the noise that reaches the final model, made as small as budgets allow (docs/theory.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from nestegg.accounting import ORDERS, Array, GaussianAccountant, GaussianSpending, compose, gaussian_allowance, rdp
from nestegg.errors import InputError
from nestegg.planning.influence import forgetting, read_influence, resampled
from nestegg.planning.schedule import Schedule, reachable

if TYPE_CHECKING:
    from nestegg.planning.setting import Setting

# From this rate on, the closed form is within 0.05 % of the optimum; below, conditions are solved: 1 % at a half.
CLOSE = 0.9
_STEPS, _DAMPED, _NUDGE, _ULP = 8, 0.22, 1e-4, 1e-12
_MANY = 100  # rounds: as many take seconds to calibrate
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
        weights = matters / rates  # the mean update has noise σ/q: where fewer take part, the same σ weighs more
        if rates.min() == 1.0 and all(isinstance(one, GaussianAccountant) for one in setting.accountants):
            return closed_form(setting, weights)
        shape, coarse = weights**-0.5, setting.rounds > _MANY
        if rates.min() < CLOSE:
            shape = improved(setting, setting.calibrated(rates, shape, coarse=coarse), weights)
        return setting.calibrated(rates, shape, coarse=coarse)

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


def closed_form(setting: Setting, weights: Array) -> Schedule:
    """Return the schedule where everybody is in every round: μ_n² = Σ_t (σ_n^t)^(−2) is all that a budget limits."""
    shape = weights**-0.5
    account = GaussianAccountant()  # which refuses releases to a sample of clients
    before = np.array(
        [compose(account, one.already_spent).squares[0] if one.already_spent else 0.0 for one in setting.groups]
    )
    left = _allowance(tuple(setting.budgets.tolist()), setting.delta) - before
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.sqrt(np.square(1.0 / shape).sum() / np.maximum(left, 0.0)) * (1.0 + _ULP)
    noise = reachable(scale * shape.max(), setting.groups)[:, None] * (shape / shape.max())
    squares = before[:, None] + np.cumsum(noise**-2.0, axis=1)
    spent = GaussianSpending(squares.ravel()).epsilon(setting.delta).reshape(squares.shape)
    return Schedule(np.ones(setting.shape), noise, spent)


@lru_cache(maxsize=64)  # the same budgets are planned for again and again: by other methods, with another memory
def _allowance(budgets: tuple[float, ...], delta: float) -> Array:
    """What budgets allow, as a whole: it takes a third of the time of a plan."""
    return gaussian_allowance(budgets, delta)


def improved(setting: Setting, made: Schedule, weights: Array) -> Array:
    """Return relative noise by the optimality conditions for clients that are sampled, begun with the closed form.

    With the cost r(σ) of a round at the order that decides a client's ε, the conditions are that
    a_t² (σ^t)³ / (σ_n^t · −dr/dlog σ) is the same in all rounds. Without sampling r ∝ σ^(−2), which is the closed form.
    Everybody takes the shape of the group that weighs most in σ^t: its own would gain it next to nothing.
    """
    i = int(np.argmax(setting.clients / made.noise_multiplier.mean(axis=1)))
    q, noise = made.sampling_rate[i], made.noise_multiplier[i]
    order = _deciding_order(q, noise, setting.delta)
    budget = rdp(q, noise, [order]).sum()
    for _ in range(_STEPS):
        cost = rdp(q, noise, [order])[:, 0]
        slope = (cost - rdp(q, noise * (1.0 + _NUDGE), [order])[:, 0]) / _NUDGE
        off = np.log(np.square(weights * noise) / np.maximum(slope, 1e-300))
        noise = noise * np.exp(-_DAMPED * (off - off.mean()))
        cost = rdp(q, noise, [order])[:, 0].sum()
        noise = noise * (cost / budget) ** 0.5  # about as much is spent as before: the cost of a round has its scale
    return np.asarray(noise)


def _deciding_order(q: Array, noise: Array, delta: float) -> float:
    """The Rényi order by which rounds have the smallest ε."""
    orders = np.array(ORDERS)
    spent = rdp(q, noise, orders).sum(axis=0) + np.log1p(-1.0 / orders)
    return float(orders[np.argmin(spent - (np.log(delta) + np.log(orders)) / (orders - 1.0))])
