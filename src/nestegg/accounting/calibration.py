"""Safe calibration: the smallest noise whose spending does not exceed a target, always from the safe side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestegg.accounting.accountant import Accountant, S
from nestegg.accounting.sampled_gaussian import Array

Rows = NDArray[np.intp]

MIN_NOISE, MAX_NOISE = 0.1, 1e5
_STEPS = 100
_SECANTS = 20  # steps before bisection takes every other one; beyond a kink, secants alone would creep


def smallest_root(total: Callable[[Rows, Array], Array], target: Array, guess: Array, rtol: float) -> Array:
    """The smallest noise of every row whose spending meets its target, for spending that falls with the noise.

    Secant steps on log ε over log σ, where the curve is nearly straight, inside a bracket that bisection keeps. Where
    the best order jumps, as at strict budgets and tiny rates, the curve has a kink, and bisection takes turns.
    A value is accepted only after `total` was seen to be below the target by it, by at most `rtol` and by
    enough (a tenth of that) that summing the same charges in another order cannot lift it over.

    Args:
        total: ε of some rows at some noise.
        target: ε that each row may spend.
        guess: where to start.
        rtol: how far below its target a row may stay, as a share of it.

    Returns:
        The noise of each row; `MIN_NOISE` where even that spends less; infinite where `MAX_NOISE` spends more.
    """
    low, high = np.full(target.shape, np.log(MIN_NOISE)), np.full(target.shape, np.log(MAX_NOISE))
    x = np.clip(np.log(guess), low, high)
    slope = np.full(target.shape, -1.5)
    last_x, last_y = np.full(target.shape, np.nan), np.full(target.shape, np.nan)
    noise = np.full(target.shape, np.inf)
    rows = np.flatnonzero(target > 0.0)  # where nothing is left to spend, no noise is enough
    for number in range(_STEPS if rows.size else 0):
        with np.errstate(divide="ignore"):  # spending nothing is log 0
            y = np.log(total(rows, np.exp(x[rows])) / target[rows])
        safe = y <= -rtol / 10.0
        noise[rows[safe]] = np.minimum(noise[rows[safe]], np.exp(x[rows[safe]]))
        at_edge = np.where(safe, x[rows] <= np.log(MIN_NOISE), x[rows] >= np.log(MAX_NOISE))
        closed = high[rows] - low[rows] < 1e-15 * np.abs(high[rows])
        open_ = ~((safe & (y >= -rtol)) | at_edge | closed)
        high[rows[safe]], low[rows[~safe]] = x[rows[safe]], x[rows[~safe]]
        rows, y = rows[open_], y[open_]
        if rows.size == 0:
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            secant = (y - last_y[rows]) / (x[rows] - last_x[rows])
        slope[rows] = np.where(np.isfinite(secant) & (secant < 0.0), secant, slope[rows])
        last_x[rows], last_y[rows] = x[rows], y
        step = x[rows] - np.clip((y + rtol / 2.0) / slope[rows], -2.0, 2.0)
        inside = (step > low[rows]) & (step < high[rows]) & (number < _SECANTS or number % 2 == 0)
        middle = (low[rows] + high[rows]) / 2.0
        reaches = np.where(step <= low[rows], low[rows] <= np.log(MIN_NOISE), high[rows] >= np.log(MAX_NOISE))
        x[rows] = np.where(inside, step, np.where(reaches, np.clip(step, low[rows], high[rows]), middle))
    return noise


def first_guess(q: ArrayLike, count: ArrayLike, target: ArrayLike, delta: float) -> Array:
    """The σ of an unsampled Gaussian mechanism whose signal is q times as strong, by ε = ρ + 2 √(ρ log(1/δ))."""
    need = -np.log(delta)
    root = np.sqrt(need + np.maximum(target, 1e-9)) - np.sqrt(need)
    return np.asarray(np.asarray(q) * np.sqrt(np.asarray(count) / 2.0) / root)


def smallest_noise(
    accountant: Accountant[S],
    q: ArrayLike,
    count: ArrayLike,
    target: ArrayLike,
    delta: float,
    spent: S | None = None,
    guess: ArrayLike | None = None,
) -> Array:
    """GetNoise of the paper: the smallest σ so that `count` releases at rate `q` keep everyone within (target, δ).

    Args:
        accountant: what spending means.
        q: sampling rate of each row.
        count: number of releases of each row.
        target: ε that each row may have spent in the end.
        delta: δ of every row.
        spent: what each row has spent before; nothing by default.
        guess: where to start; by default `first_guess`.

    Returns:
        σ of each row; infinite where no noise is enough.

    >>> from nestegg.accounting import RdpAccountant
    >>> float(smallest_noise(RdpAccountant(), q=0.9, count=25, target=10.0, delta=1e-5)[0].round(3))
    2.424
    """
    rate, rounds, aim = np.broadcast_arrays(np.atleast_1d(q), np.atleast_1d(count), np.atleast_1d(target))
    if guess is None:
        guess = first_guess(rate, rounds, aim, delta)

    def total(rows: Rows, sigma: Array) -> Array:
        spending = accountant.spend(rate[rows], sigma) * rounds[rows]
        return (spending if spent is None else spent.rows(rows) + spending).epsilon(delta)

    return smallest_root(total, aim.astype(np.float64), np.asarray(guess, np.float64), accountant.rtol)
