"""Gaussian accounting, for clients that take part in every round: exact, in closed form.

Releases with noise multipliers σ_t compose, without sampling, to one Gaussian mechanism with μ² = Σ_t σ_t^(−2), chosen
in advance or one after the other, and its privacy is known exactly (Balle and Wang 2018): with x = ε/μ − μ/2 and Mills'
ratio R(x) = Φ(−x)/φ(x),

    δ(ε) = Φ(−x) − e^ε Φ(−x − μ) = φ(x) (R(x) − R(x + μ)),

the second form because e^ε φ(x + μ) = φ(x): it has digits left where both terms of the first are tiny.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

from nestegg.accounting.accountant import Accountant
from nestegg.accounting.sampled_gaussian import Array
from nestegg.errors import InputError

_STEPS = 64  # of bisection: more than a double has digits
_FAR = -5.0  # below it Mills' ratio would overflow, and the first form cannot cancel
_ULP = 1e-15  # a rounding, generously


@dataclass(frozen=True, eq=False)
class GaussianSpending:
    """What clients have spent: μ² = Σ σ^(−2), a number a row. `+` composes releases, `*` repeats them."""

    squares: Array

    def __add__(self, other: GaussianSpending) -> GaussianSpending:
        return GaussianSpending(self.squares + other.squares)

    def __mul__(self, count: ArrayLike) -> GaussianSpending:
        return GaussianSpending(self.squares * np.asarray(count))

    def rows(self, rows: NDArray[np.intp]) -> GaussianSpending:
        """The spending of some rows."""
        return GaussianSpending(self.squares[rows])

    def replaced(self, rows: NDArray[np.intp], other: GaussianSpending) -> GaussianSpending:
        """The same spending with some rows exchanged for those of `other`."""
        squares = self.squares.copy()
        squares[rows] = other.squares
        return GaussianSpending(squares)

    def total(self) -> GaussianSpending:
        """All rows composed into one."""
        return GaussianSpending(self.squares.sum(keepdims=True))

    def running(self, before: GaussianSpending) -> GaussianSpending:
        """The sum after every row, begun with `before`."""
        return GaussianSpending(before.squares + np.cumsum(self.squares))

    def epsilon(self, delta: float) -> Array:
        """The smallest ε of every row; where rounding decides, the larger."""
        mu = np.sqrt(self.squares)
        enough = self.squares / 2.0 + mu * np.sqrt(-2.0 * np.log(delta))  # by concentrated privacy

        def spends_more(epsilon: Array) -> NDArray[np.bool_]:
            return np.asarray(_log_delta(mu, epsilon) > np.log(delta))

        return np.where(spends_more(np.zeros_like(mu)), _bisected(spends_more, enough)[1], 0.0)

    def delta(self, epsilon: float) -> Array:
        """The smallest δ of every row for a given ε; where rounding decides, the larger."""
        mu = np.sqrt(self.squares)
        return np.asarray(np.exp(np.minimum(_log_delta(mu, np.full_like(mu, epsilon)), 0.0)))


@dataclass(frozen=True)
class GaussianAccountant(Accountant[GaussianSpending]):
    """Accounts exactly for those who take part in every round.

    >>> spent = GaussianAccountant().spend(1.0, 2.5) * 25
    >>> float(spent.epsilon(1e-5)[0].round(4))
    9.9973
    """

    name: str = "gaussian"
    rtol: float = 1e-9

    def spend(self, q: ArrayLike, sigma: ArrayLike) -> GaussianSpending:
        """One release for each row (q, σ), q being 1, or 0 for nothing."""
        rates, noises = np.broadcast_arrays(np.atleast_1d(q), np.atleast_1d(sigma))
        if sampled := [float(rate) for rate in rates if rate not in (0.0, 1.0)]:
            raise InputError(
                f"sampling_rate = {sampled[0]!r} must be 1 with accountant = 'gaussian', which knows no amplification "
                "by sampling."
            )
        return GaussianSpending(rates / np.square(np.asarray(noises, np.float64)))


def gaussian_allowance(epsilon: float, delta: float) -> float:
    """Return the largest μ² = Σ σ^(−2) within a budget; where rounding decides, the smaller.

    >>> round((25 / gaussian_allowance(10.0, 1e-5)) ** 0.5, 3)  # the noise of 25 equal rounds
    2.499
    """
    too_much = np.array([np.sqrt(2.0 * epsilon) + 80.0])  # there x ≤ −40, and δ is 1 but for 1e-349
    low, _ = _bisected(lambda mu: _log_delta(mu, np.full_like(mu, epsilon)) <= np.log(delta), too_much)
    return float(np.square(low[0]) * (1.0 - _ULP))


def _bisected(below: Callable[[Array], NDArray[np.bool_]], high: Array) -> tuple[Array, Array]:
    """The two ends, for every row, between which `below` turns from true to false; it is not asked at `high`."""
    low, high = np.zeros_like(high), high.copy()
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        is_below = below(middle)
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return low, high


def _log_delta(mu: Array, epsilon: Array) -> Array:
    """Return log δ(ε), never below the truth: with the most that rounding can have taken from it."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x = epsilon / mu - mu / 2.0
        near = np.maximum(x, _FAR)
        here, beyond = _mills(near), _mills(x + mu)
        log_phi = -np.square(near) / 2.0 - np.log(2.0 * np.pi) / 2.0
        log_delta = log_phi + np.log(here - beyond)
        lost = 10.0 * _ULP * (here + beyond) / (here - beyond) + _ULP * (1.0 + np.abs(x)) * (epsilon / mu + mu)
        far = np.log(ndtr(-x) - np.exp(-np.square(x) / 2.0) / np.sqrt(2.0 * np.pi) * beyond)
    safe = np.where(x < _FAR, far, log_delta) + lost
    return np.where(mu > 0.0, np.where(np.isnan(safe), np.inf, safe), -np.inf)


def _mills(x: Array) -> Array:
    """Φ(−x)/φ(x)."""
    return np.asarray(np.sqrt(np.pi / 2.0) * erfcx(x / np.sqrt(2.0)))
