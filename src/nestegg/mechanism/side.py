"""Side statistics: further coordinates of the update, which need no account, no noise and no lattice of their own.

All that a client sends lies within its clip norm c_n. Its update has √(1 − f) c_n of it, and a statistic s, a number
from −1 to 1, is the coordinate √f_i c_n s, where the f_i add up to f: the squares of the parts add up to c_n² at most.
Every coordinate of the sum gets the round's one noise, c σ^t, so one charge (q_n, σ_n) covers them all. Since
c_n = c σ^t/σ_n, whoever has more budget speaks louder: a mean over clients is weighted by q_n c_n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nestegg.mechanism.clipping import BELOW

Array = NDArray[np.float64]


class Estimate(NamedTuple):
    """What the noisy sum says of a statistic's mean over all clients, and the standard deviation of its noise."""

    mean: float
    std: float


def rest_of_norm(shares: Sequence[float]) -> float:
    """Return the part of a clip norm that is left for updates: √(1 − f).

    >>> rest_of_norm([0.19, 0.17])
    0.8
    """
    return math.sqrt(1.0 - math.fsum(shares))


def lengths_of(norms: Array, shares: Sequence[float]) -> Array:
    """Return how far each client may move each further coordinate: √f_i c_n, (clients, statistics)."""
    return norms[:, None] * np.sqrt(np.asarray(shares, np.float64))


def side_points(values: Array, lengths: Array, step: float) -> Array:
    """Return statistics as whole numbers of steps, (clients, statistics); truncated, as updates are.

    What is beyond −1 or 1 counts as the nearer of them, and what is not finite as zero.
    """
    bounded = np.clip(np.where(np.isfinite(values), values, 0.0), -1.0, 1.0)
    return np.asarray(np.trunc(bounded * (lengths * BELOW / step)))


def estimates(sums: Array, lengths: Array, rates: Array, noise_std: float) -> list[Estimate]:
    """Return what the sums of a round say.

    Args:
        sums: of each statistic, with their noise, in the unit of updates.
        lengths: of all clients, whoever took part: the denominator follows from the plan.
        rates: q_n of all clients.
        noise_std: of every coordinate of the sum.
    """
    weights = rates @ lengths
    return [Estimate(float(one / weight), float(noise_std / weight)) for one, weight in zip(sums, weights, strict=True)]
