"""Slow, readable, independent versions of what the package computes fast."""

from __future__ import annotations

import math
from collections.abc import Iterable

import dp_accounting
import mpmath as mp
import numpy as np
from scipy.special import ndtr


def rdp_by_quadrature(q: float, sigma: float, alpha: float) -> float:
    """Rényi divergence of the sampled Gaussian, by numerical integration with 40 digits.

    A_α − 1 is integrated rather than A_α (E[w] is 0), so that weak releases keep their digits.
    """
    with mp.workdps(40):
        q, s, a = mp.mpf(q), mp.mpf(sigma), mp.mpf(alpha)

        def integrand(z: mp.mpf) -> mp.mpf:
            w = q * mp.expm1((2 * z - 1) / (2 * s * s))
            return mp.npdf(z, 0, s) * ((1 + w) ** a - 1 - a * w)

        pieces = int(mp.ceil((a + 26 * s) / (3 * s)))
        points = mp.linspace(-13 * s, a + 13 * s, pieces + 1)
        excess = mp.quad(integrand, points, method="gauss-legendre", maxdegree=6)
        return float(mp.log1p(excess) / (a - 1))


def rdp_by_binomials(q: float, sigma: float, alpha: int) -> float:
    """The same for a whole order, where A_α is a finite sum (Mironov, Talwar, Zhang 2019, section 3.3)."""
    with mp.workdps(50):
        q, s = mp.mpf(q), mp.mpf(sigma)
        terms = (
            mp.binomial(alpha, k) * (1 - q) ** (alpha - k) * q**k * mp.expm1(mp.mpf(k * k - k) / (2 * s * s))
            for k in range(2, alpha + 1)
        )
        return float(mp.log1p(mp.fsum(terms)) / (alpha - 1))


def epsilon_from_rdp(orders: list[float], rdp: list[float], delta: float) -> float:
    """The paper's lemma from RDP to DP, order by order."""
    candidates = [
        r + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1) for a, r in zip(orders, rdp, strict=True)
    ]
    return max(min(candidates), 0.0)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of the Gaussian mechanism with sensitivity μ and noise 1, from two tails, with 60 digits."""
    with mp.workdps(60):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return float(mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε of the same at a δ, by bisection."""
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return low


def epsilon_by_google(charges: Iterable[tuple[float, float, int]], delta: float, *, by: str) -> float:
    """ε of releases (q, σ, how many times), by an accountant of Google's library: rdp or pld."""
    accountants = {
        "rdp": dp_accounting.rdp.RdpAccountant([1 + 0.1 * i for i in range(1, 640)]),
        "pld": dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3),
    }
    for q, sigma, count in charges:
        release = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        accountants[by].compose(release, count)
    return float(accountants[by].get_epsilon(delta))


def epsilon_from_below(q: float, sigma: float, count: int, delta: float, width: float) -> float:
    """At most the smallest ε of so many sampled Gaussian releases, and below it by no more than count × width.

    Losses log(dP/dQ) of a client that is there are rounded down to a grid and convolved term by term: all terms are
    positive, so that tails keep their digits however small they are, which a Fourier transform does not grant.
    """
    top = math.log1p(q * math.expm1((2 * (1 + 12 * sigma) - 1) / (2 * sigma**2)))
    losses = np.arange(math.ceil((math.log1p(-q) if q < 1 else -top) / width) + 1, math.floor(top / width)) * width
    z = sigma**2 * np.log((np.expm1(losses) + q) / q) + 0.5
    above = (1 - q) * ndtr(-z / sigma) + q * ndtr(-(z - 1) / sigma)
    single = np.append(-np.diff(above), above[-1])
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, single)
    grid = count * losses[0] + width * np.arange(total.size)
    low, high = 0.0, float(grid[-1])
    for _ in range(50):
        middle = (low + high) / 2
        over = grid > middle
        found = float(np.sum(total[over] * -np.expm1(middle - grid[over])))
        low, high = (middle, high) if found > delta else (low, middle)
    return low


def rdp_per_round_by_recursion(
    total: float, rounds: int, transition: int, saving_rate: float, spending_rate: float
) -> list[float]:
    """Equation (recursive) of the paper, round by round."""
    spent: list[float] = []
    for t in range(1, rounds + 1):
        share = (total - sum(spent)) / (rounds - t + 1)
        spent.append(share * (saving_rate / spending_rate) ** 2 if t < transition else share)
    return spent


def spend_as_you_go_by_bisection(
    curve: object,
    epsilon: float,
    delta: float,
    rounds: int,
    q: float,
    saving_rate: float,
    transition: int,
    orders: list[float],
) -> list[float]:
    """The exact planner for one client as a page of plain Python: `curve(q, σ)` gives the Rényi curve of a release."""
    spent = [0.0] * len(orders)
    noise = []
    for t in range(1, rounds + 1):
        low, high = 0.1, 1e4
        for _ in range(60):
            middle = math.sqrt(low * high)
            future = curve(q, middle)  # type: ignore[operator]
            total = [s + (rounds - t + 1) * r for s, r in zip(spent, future, strict=True)]
            if epsilon_from_rdp(orders, total, delta) <= epsilon:
                high = middle
            else:
                low = middle
        noise.append(high)
        charge = curve(saving_rate if t < transition else q, high)  # type: ignore[operator]
        spent = [s + c for s, c in zip(spent, charge, strict=True)]
    return noise
