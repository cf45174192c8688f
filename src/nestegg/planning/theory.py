"""The paper's theory as functions: Lemma 1, Theorems 2 and 3, and the optimal assignment of saving rates.

Theorem 1 (the Rényi spending of a round never falls while saving and is constant while spending) is a property of
`rdp_per_round`, and of every exact plan; the tests hold both to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nestegg.accounting import Array
from nestegg.checks import positive, rate, whole
from nestegg.errors import InputError


def rdp_per_round(total: float, rounds: int, transition: int, saving_rate: float, spending_rate: float) -> Array:
    """Lemma 1: Rényi budget spent in every round, at one order and under the law rdp ∝ q².

    The law holds for small q only, so this is the paper's theory and not its accounting.

    Args:
        total: ε_rdp,n, the whole Rényi budget at that order.
        rounds: T.
        transition: T_n.
        saving_rate: q_n.
        spending_rate: q.

    >>> rdp_per_round(1.0, rounds=4, transition=3, saving_rate=0.5, spending_rate=1.0).round(4).tolist()
    [0.0625, 0.0781, 0.4297, 0.4297]
    """
    positive("total", total)
    whole("rounds", rounds, 1)
    whole("transition", transition, 1, rounds)
    rate("spending_rate", spending_rate)
    ratio = (rate("saving_rate", saving_rate, spending_rate, "spending_rate") / spending_rate) ** 2
    t = np.arange(1, rounds + 1)
    # What is left before round t: each of the saving rounds s < t took the share ratio / (T − s + 1) of it.
    kept = np.where(t < transition, 1.0 - ratio / (rounds - t + 1.0), 1.0)
    left = total * np.concatenate(([1.0], np.cumprod(kept)[:-1]))
    start = np.minimum(t, transition)
    return np.asarray(left / (rounds - start + 1.0) * np.where(t < transition, ratio, 1.0))


def bias_bound_given_budgets(
    mean_updates: ArrayLike, moments: ArrayLike, sampling_rates: ArrayLike, clip_norms: ArrayLike, rho: float = 2.0
) -> float:
    """Theorem 2: bound on the bias of a round's update when clients and their budgets are fixed.

    Args:
        mean_updates: E[Δθ_n], one row a client.
        moments: E‖Δθ_n‖^ρ of every client.
        sampling_rates: q_n^t of every client.
        clip_norms: c_n^t of every client.
        rho: ρ > 1.
    """
    q, c, m = _client_arrays(sampling_rates, clip_norms, moments, rho)
    updates = np.asarray(mean_updates, np.float64).reshape(q.size, -1)
    relative = q / q.mean()
    drift = np.linalg.norm(((1.0 - relative)[:, None] * updates).mean(axis=0))
    clipping = np.mean(relative * m / c ** (rho - 1.0))
    return float(drift + clipping)


def bias_bound_random_budgets(
    moments: ArrayLike, sampling_rates: ArrayLike, clip_norms: ArrayLike, rho: float = 2.0
) -> float:
    """Theorem 3: bound on the bias of a round's update when budgets are assigned to clients at random.

    The drift of Theorem 2 is 0 in expectation, and rates and clip norms separate from the data.

    Args:
        moments: E‖Δθ_n‖^ρ of every client.
        sampling_rates: q_n^t of every client.
        clip_norms: c_n^t of every client.
        rho: ρ > 1.
    """
    q, c, m = _client_arrays(sampling_rates, clip_norms, moments, rho)
    return float(m.mean() * np.mean(q / q.mean() / c ** (rho - 1.0)))


def assign_saving_rates(rates: ArrayLike, clip_norms: ArrayLike) -> Array:
    """The assignment of given rates to clients that minimises Theorem 3: the smallest clip norm gets the smallest rate.

    >>> assign_saving_rates([0.7, 0.5, 0.6], clip_norms=[2.0, 3.0, 1.0]).tolist()
    [0.6, 0.7, 0.5]
    """
    values, norms = np.sort(np.asarray(rates, np.float64)), np.asarray(clip_norms, np.float64)
    if values.shape != norms.shape:
        raise InputError(f"rates has {values.size} values and clip_norms has {norms.size}; they must be as many.")
    assigned = np.empty_like(values)
    assigned[np.argsort(norms, kind="stable")] = values
    return assigned


def _client_arrays(q: ArrayLike, c: ArrayLike, m: ArrayLike, rho: float) -> tuple[Array, Array, Array]:
    if not rho > 1.0:
        raise InputError(f"rho = {rho!r} must be above 1.")
    rates, norms, moments = (np.asarray(values, np.float64) for values in (q, c, m))
    if not rates.shape == norms.shape == moments.shape or rates.ndim != 1:
        raise InputError("sampling_rates, clip_norms and moments must have one value for each client.")
    return rates, norms, moments
