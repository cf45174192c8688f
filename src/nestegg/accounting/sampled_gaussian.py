"""Exact Rényi divergence of the sampled Gaussian mechanism (Mironov, Talwar, Zhang 2019).

One client takes part with probability q; its clipped update has norm 1 and the release carries noise
N(0, σ² I). For order α the divergence is log(A_α) / (α − 1) with

    A_α = E[(1 + w)^α],   w = q (e^u − 1),   u = (2 z − 1) / (2 σ²),   z ~ N(0, σ²).

The usual series for A_α sum binomials (integer α) or alternating infinite tails (fractional α). Here every
order, whole or not, is one trapezoidal sum over x = z/σ. The integrand is analytic up to the branch points
x = … ± iπσ and decays like a Gaussian, so the sum converges geometrically: a few dozen nodes give full double
precision, and NumPy evaluates all of them, for all orders and all (q, σ), in a handful of array operations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Beyond this many standard deviations a Gaussian tail is below double precision, relative to any moment.
_TAIL = 9.0
# The trapezoidal error is e^{-_DIGITS}: about one unit in the last place.
_DIGITS = 36.0
# Elements of one temporary array: small enough to stay in a core's cache.
_CHUNK = 1 << 16
# e to this power is still a double.
_LARGEST = 700.0
# Below this value log(A) has lost digits to the leading 1 of A, and A − 1 is summed instead.
_CANCELLATION = 1e-6


def rdp(q: ArrayLike, sigma: ArrayLike, orders: ArrayLike) -> Array:
    """Rényi divergence of one sampled Gaussian release at every order.

    Args:
        q: Poisson sampling rates in [0, 1].
        sigma: noise multipliers above 0; broadcast against `q`.
        orders: orders α > 1, a vector.

    Returns:
        An array of shape ``broadcast(q, sigma).shape + orders.shape``.

    >>> float(rdp(1.0, 2.0, [3.0])[0])  # without sampling it is α / (2 σ²)
    0.375
    """
    alpha = np.atleast_1d(np.asarray(orders, np.float64))
    rates, noises = np.broadcast_arrays(np.asarray(q, np.float64), np.asarray(sigma, np.float64))
    rate, noise = rates.ravel(), noises.ravel()
    unsampled = alpha / (2.0 * np.square(noise)[:, None])
    result = np.where(rate[:, None] >= 1.0, unsampled, 0.0)
    mixed = np.flatnonzero((rate > 0.0) & (rate < 1.0))
    for rows, columns, nodes in _blocks(noise[mixed], alpha):
        at = mixed[rows]
        moments = _log_moments(rate[at], noise[at], alpha[columns], nodes)
        result[np.ix_(at, columns)] = moments / (alpha[columns] - 1.0)
    return result.reshape(rates.shape + alpha.shape)


def _blocks(sigma: Array, alpha: Array) -> Iterator[tuple[Index, Index, int]]:
    """Split (rows × orders) into blocks that share a number of nodes and fit the cache.

    The mass of A_α reaches up to x = α/σ, so orders within a factor of two share a set of nodes, and so do
    rows whose node counts round up to the same power of two.
    """
    octaves = np.ceil(np.log2(np.maximum(alpha, 16.0)))
    for octave in np.unique(octaves):
        columns = np.flatnonzero(octaves == octave)
        counts = np.ceil((2.0 * _TAIL + alpha[columns].max() / sigma) / _step(sigma)) + 1.0
        buckets = np.ceil(np.log2(counts))
        for bucket in np.unique(buckets):
            rows = np.flatnonzero(buckets == bucket)
            nodes = int(counts[rows].max())
            size = max(1, _CHUNK // (nodes * columns.size))
            for start in range(0, rows.size, size):
                yield rows[start : start + size], columns, nodes


def _step(sigma: Array) -> Array:
    """Widest spacing of nodes with error e^{-_DIGITS}, set by the Gaussian (large σ) or by the branch point at iπσ."""
    gaussian = np.pi * np.sqrt(2.0 / _DIGITS)
    branch = 2.0 * np.pi**2 * sigma / (_DIGITS + np.square(np.pi * sigma) / 2.0)
    return np.where(sigma * gaussian >= 2.0, gaussian, branch)


def _log_moments(q: Array, sigma: Array, alpha: Array, nodes: int) -> Array:
    """Log A_α for every row (q, σ) and order, with relative precision even where A_α is 1 + 1e-30."""
    step = (2.0 * _TAIL + alpha.max() / sigma) / (nodes - 1)
    x = np.arange(nodes) * step[:, None] - _TAIL
    log_1w = _log_mixture(q[:, None], x / sigma[:, None] - 0.5 / np.square(sigma)[:, None])
    log_weight = np.log(step / np.sqrt(2.0 * np.pi))[:, None] - np.square(x) / 2.0

    exponent = alpha[:, None] * log_1w[:, None, :]
    if alpha.max() * np.abs(log_1w).max() < _LARGEST:
        log_a = np.log(np.exp(exponent, out=exponent) @ np.exp(log_weight)[:, :, None])[..., 0]
    else:
        exponent += log_weight[:, None, :]
        top = exponent.max(axis=-1)
        exponent -= top[..., None]
        np.maximum(exponent, -_LARGEST, out=exponent)  # as good as −∞ next to the top, and much faster
        log_a = np.log(np.exp(exponent, out=exponent).sum(axis=-1)) + top

    lost = log_a < _CANCELLATION
    if lost.any():
        rows, columns = lost.any(axis=1), lost.any(axis=0)
        part = np.ix_(rows, columns)
        excess = _log_excess(log_1w[rows], log_weight[rows], alpha[columns])
        accurate = np.log1p(np.exp(np.minimum(excess, _LARGEST)))  # large ones are of neighbours, and not taken
        log_a[part] = np.where(lost[part], accurate, log_a[part])
    return np.asarray(log_a)


def _log_mixture(q: Array, u: Array) -> Array:
    """log(1 − q + q e^u), accurate for small q, for q near 1 and for e^u beyond the largest double."""
    low, high = np.log1p(-q), np.log(q) + u
    by_sum = np.maximum(low, high) + np.log1p(np.exp(np.maximum(-np.abs(low - high), -_LARGEST)))
    near_zero = np.abs(u) < 1.0
    return np.where(near_zero, np.log1p(q * np.expm1(np.where(near_zero, u, 0.0))), by_sum)


def _log_excess(log_1w: Array, log_weight: Array, alpha: Array) -> Array:
    """log(A_α − 1), free of cancellation.

    E[w] = 0, so A_α − 1 = E[(1 + w)^α − 1 − αw], and by Bernoulli's inequality no term is negative. For small
    w the bracket is its binomial series; elsewhere it is written with expm1, or by its logarithm where it is huge.
    """
    a = alpha[:, None]
    ell = log_1w[:, None, :]
    small = np.abs(a * ell) < 0.05
    w = np.where(small, np.expm1(np.minimum(ell, 1.0)), 0.0)
    series = np.ones_like(w)
    for k in range(11, 2, -1):
        series = 1.0 + series * w * (a - (k - 1)) / k
    with np.errstate(divide="ignore"):  # log 0 = −inf at u = 0, where the bracket is 0
        tiny = np.log(a * (a - 1.0) / 2.0) + 2.0 * np.log(np.abs(w)) + np.log(series)
        bracket = np.expm1(np.minimum(a * ell, _LARGEST)) - a * np.expm1(np.minimum(ell, _LARGEST))
        moderate = np.log(np.maximum(bracket, 0.0))
        huge = a * ell + np.log1p(-np.minimum(a * np.exp(-(a - 1.0) * np.maximum(ell, 0.0)), 1.0))
    log_terms = np.where(small, tiny, np.where(a * ell < _LARGEST, moderate, huge)) + log_weight[:, None, :]
    top = log_terms.max(axis=-1, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(log_terms - top).sum(axis=-1)))
