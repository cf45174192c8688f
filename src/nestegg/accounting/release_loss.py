"""The loss distribution of one sampled Gaussian release: Google's, with all cells of the grid computed at once.

`dp_accounting` inverts the privacy loss of one cell after the other in Python, which took most of the time in which a
plan is judged. Here its class does so for an array, by the same operations: every bit of the result is the same. Not a
part of `pld`, because `dp_accounting` is slow to import and most commands do without it.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from nestegg.accounting.sampled_gaussian import Array


class _Release(GaussianPrivacyLoss):  # type: ignore[misc]  # the package has no types
    """One release, seen by whoever adds or removes a client."""

    def get_delta_for_epsilon(self, epsilon: Array) -> Array:
        """Return δ at every ε."""
        q = self.sampling_prob
        if q == 1.0:
            inside = np.full(epsilon.shape, True)
        elif self.adjacency_type == AdjacencyType.ADD:
            inside = epsilon < -math.log1p(-q)
        else:
            inside = epsilon > math.log1p(-q)
        deltas = np.zeros(epsilon.shape) if self.adjacency_type == AdjacencyType.ADD else -np.expm1(epsilon)
        losses = epsilon[inside]
        x = self._outcomes(losses)
        deltas[inside] = self.mu_upper_cdf(x) - np.exp(losses + self.mu_lower_log_cdf(x))
        return np.clip(deltas, 0.0, 1.0)

    def _outcomes(self, losses: Array) -> Array:
        """Return the largest outcome whose loss is at least this one, for every loss."""
        q, sign = self.sampling_prob, -1.0 if self.adjacency_type == AdjacencyType.ADD else 1.0
        shift = self.sensitivity if self.adjacency_type == AdjacencyType.ADD else 0.0
        if q < 1.0:
            losses = sign * _unsampled(sign * losses, q)
        return np.asarray(shift + self._inverse_privacy_loss_without_subsampling_remove(losses))


def _unsampled(losses: Array, q: float) -> Array:
    """Return log(1 + (e^loss − 1) / q), the loss of those who are sampled; −∞ at its pole, log(1 − q)."""
    pole = np.isclose(losses, math.log(1.0 - q), rtol=1e-9, atol=0.0)
    top, rest = losses + np.log(1.0 / q), np.log(1.0 / q - 1.0)
    found = top + np.log1p(-np.exp(np.where(pole, -math.inf, rest - top)))
    found[losses == 0.0] = np.log(1.0 / q + (1.0 - 1.0 / q))
    return np.where(pole, -math.inf, found)


def release_loss(q: float, sigma: float, interval: float) -> PrivacyLossDistribution:
    """Return the loss distribution of a release at rate q > 0 with noise σ, on a grid, every rounding pessimistic.

    >>> round(release_loss(1.0, 2.0, 1e-3).get_epsilon_for_delta(1e-5), 3)
    1.993
    """

    def seen_by(adjacency: AdjacencyType) -> pld_pmf.PLDPmf:
        release = _Release(sigma, sampling_prob=q, adjacency_type=adjacency)
        bounds = release.connect_dots_bounds()
        low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        deltas = release.get_delta_for_epsilon(np.arange(low, high + 1) * interval)
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)

    removed = seen_by(AdjacencyType.REMOVE)
    return PrivacyLossDistribution(removed, seen_by(AdjacencyType.ADD) if q < 1.0 else None)
