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
import scipy  # its `special` is slow to import, and comes when it is first used
from numpy.typing import ArrayLike, NDArray

from nestegg.accounting.accountant import Accountant
from nestegg.accounting.sampled_gaussian import Array
from nestegg.errors import InputError

Rows = NDArray[np.intp]

_STEPS = 64  # of bisection: more than a double has digits
_NEWTON = 12  # steps of Newton's method at most; five are usual
_DOUBT = 2.0**-46  # how far rounding can move a root, generously, beside 1 and the root itself
_WIDE = 2.0**12  # so many doubts long is an interval whose middle is hardly ever in doubt
_FLAT = 0.5  # beyond this δ it is
_CHUNK = 1 << 13  # rows at a time: small enough to stay in a core's cache
_FAR = -5.0  # below it Mills' ratio would overflow, and the first form cannot cancel
_ULP = 1e-15  # a rounding, generously
_LOG_ROOT = float(np.log(2.0 * np.pi) / 2.0)
_ROOT_HALF_PI, _ROOT_2PI, _ROOT_2 = (float(np.sqrt(square)) for square in (np.pi / 2.0, 2.0 * np.pi, 2.0))


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

    @np.errstate(all="ignore")  # what comes to nothing is seen to where it does
    def epsilon(self, delta: float) -> Array:
        """The smallest ε of every row; where rounding decides, the larger."""
        found = np.empty_like(self.squares)
        for start in range(0, found.size, _CHUNK):
            found[start : start + _CHUNK] = _epsilon(self.squares[start : start + _CHUNK], delta)
        return found

    @np.errstate(all="ignore")
    def delta(self, epsilon: float) -> Array:
        """The smallest δ of every row for a given ε; where rounding decides, the larger."""
        mu = np.sqrt(self.squares)
        return np.asarray(np.exp(np.minimum(_log_delta(mu, np.full_like(mu, epsilon))[0], 0.0)))


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


@np.errstate(all="ignore")
def gaussian_allowance(epsilon: ArrayLike, delta: float) -> Array:
    """Return the largest μ² = Σ σ^(−2) within every budget; where rounding decides, the smaller.

    >>> np.sqrt(25 / gaussian_allowance([10.0, 20.0], 1e-5)).round(3).tolist()  # the noise of 25 equal rounds
    [2.499, 1.45]
    """
    target, log_delta, quantile = (
        np.atleast_1d(np.asarray(epsilon, np.float64)),
        float(np.log(delta)),
        scipy.special.ndtri(delta),
    )

    def step(mu: Array) -> Array:
        found, here, beyond = _log_delta(mu, target)
        return np.asarray(mu * np.exp((log_delta - found) * (here - beyond) / mu))

    def allows(rows: Rows, mu: Array) -> NDArray[np.bool_]:
        return _log_delta(mu, target[rows])[0] <= log_delta

    # Begun where δ would be reached without its second term, which is too little.
    near = _by_newton(step, quantile + np.sqrt(quantile**2 + 2.0 * target), delta)
    too_much = np.sqrt(2.0 * target) + 80.0  # there x ≤ −40, and δ is 1 but for 1e-349
    return np.asarray(np.square(_bisected(allows, too_much, near)[0]) * (1.0 - _ULP))


def _epsilon(squares: Array, delta: float) -> Array:
    """The smallest ε of every row; where rounding decides, the larger."""
    log_delta, found = float(np.log(delta)), np.zeros_like(squares)
    some = np.flatnonzero(_log_delta(np.sqrt(squares), found)[0] > log_delta)
    square, mu = squares[some], np.sqrt(squares[some])

    def step(epsilon: Array) -> Array:
        more, here, beyond = _log_delta(mu, epsilon)
        return np.maximum(epsilon + (more - log_delta) * (here - beyond) / beyond, 0.0)

    def spends_more(rows: Rows, epsilon: Array) -> NDArray[np.bool_]:
        return _log_delta(mu[rows], epsilon)[0] > log_delta

    # Begun where δ would be reached without its second term, which is too much: log δ is concave, no step goes too far.
    near = _by_newton(step, np.maximum(square / 2.0 - mu * scipy.special.ndtri(delta), 0.0), delta)
    enough = square / 2.0 + mu * np.sqrt(-2.0 * np.log(delta))  # by concentrated privacy
    found[some] = _bisected(spends_more, enough, near)[1]
    return found


def _by_newton(step: Callable[[Array], Array], start: Array, delta: float) -> Array:
    """About where steps end, if they do; unknown where δ is so flat that rounding decides far and wide."""
    if delta > _FLAT:
        return np.full_like(start, np.nan)
    for _ in range(_NEWTON):  # a row may come to nothing: it is not used unless it is confirmed
        last, start = start, step(start)
        if np.logical_and.reduce(np.abs(start - last) <= 1e-8 * start):
            break
    return start


def _bisected(below: Callable[[Rows, Array], NDArray[np.bool_]], top: Array, near: Array) -> tuple[Array, Array]:
    """The two ends, for every row, between which `below` turns from true to false; it is not asked at `top`.

    They are, to the bit, those of plain bisection from 0 to `top`. But asking takes long, so `below` is asked only
    where rounding may decide, close to where it turns by Newton's method. Rows for which that is not known, or for
    which the ends that are found were not asked, are asked throughout.
    """
    low, high, known = np.zeros_like(top), top.copy(), np.isfinite(near)
    doubt = _DOUBT * (1.0 + near)
    first, last = np.where(known, near - doubt, -np.inf), np.where(known, near + doubt, np.inf)
    # While intervals are wide, their middles are clear of all doubt, but for accidents that leave an end in doubt.
    wide, tight, steps = 0, 0, _STEPS
    if known.all() and top.size:
        wide = max(int(np.log2((top / doubt).min() / _WIDE)), 0)
        # So many bisections, but for rounding, and ends are neighbours.
        digits = np.minimum(np.log2(top / np.spacing(near)), _STEPS)
        tight, steps = int(digits.min()) - 2, min(int(digits.max()) + 4, _STEPS)
    middle, is_below = np.empty_like(top), np.empty(top.shape, np.bool_)
    asked = ~known
    for step in range(steps):
        np.multiply(np.add(low, high, middle), 0.5, middle)
        np.less(middle, near, is_below)
        if step == wide:
            asked |= (low < first) & (last < high)
        if step >= wide:
            is_in_doubt = (first <= middle) & (middle <= last)
            if step >= tight:  # neighbours have no middle, and stay
                is_in_doubt &= (low < middle) & (middle < high)
                is_below = (is_below | (middle == low)) & (middle < high)
            rows = is_in_doubt.nonzero()[0]
            if rows.size:
                is_below[rows] = below(rows, middle[rows])
        np.putmask(low, is_below, middle)
        np.putmask(high, ~is_below, middle)
    # Where `near` is off, ends meet at the edge of doubt, where on one side nobody was asked.
    asked &= ~known | (np.maximum(near - low, high - near) <= doubt / 2.0)
    if not asked.all():
        anew = np.flatnonzero(~asked)
        ends = _bisected(lambda rows, at: below(anew[rows], at), top[anew], np.full(anew.size, np.nan))
        low[anew], high[anew] = ends
    return low, high


def _log_delta(mu: Array, epsilon: Array) -> tuple[Array, Array, Array]:
    """Return log δ(ε), never below the truth: with the most that rounding can have taken from it; R(x) and R(x + μ)."""
    ratio = epsilon / mu
    x = ratio - mu / 2.0
    near = np.maximum(x, _FAR)
    here, beyond = _mills(near), _mills(x + mu)
    gap = here - beyond
    log_delta = -np.square(near) / 2.0 - _LOG_ROOT + np.log(gap)
    lost = 10.0 * _ULP * (here + beyond) / gap + _ULP * (1.0 + np.abs(x)) * (ratio + mu)
    far = x < _FAR
    if np.logical_or.reduce(far):
        first_form = np.log(scipy.special.ndtr(-x) - np.exp(-np.square(x) / 2.0) / _ROOT_2PI * beyond)
        log_delta = np.where(far, first_form, log_delta)
    safe = log_delta + lost
    if not np.isfinite(np.add.reduce(safe)):
        safe = np.where(mu > 0.0, np.where(np.isnan(safe), np.inf, safe), -np.inf)
    return safe, here, beyond


def _mills(x: Array) -> Array:
    """Φ(−x)/φ(x)."""
    return np.asarray(_ROOT_HALF_PI * scipy.special.erfcx(x / _ROOT_2))
