"""The promise itself: how well anybody can tell, from all releases, whether one client's data is there.

A plan promises P[E | D] ≤ e^ε P[E | D′] + δ(ε) for every event E, every ε and both orders of the two worlds. The event
that is tried is "the likelihood ratio of everything seen is above a threshold", than which there is none better. It is
chosen on one half of the trials and tested on the other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from nestegg.accounting import Array, GaussianSpending
from nestegg.audit.claims import Claims
from nestegg.audit.findings import Finding
from nestegg.audit.trials import Trials
from nestegg.planning.losses import spending

CONFIDENCE = 0.95  # of the bounds that are shown
_THRESHOLDS, _EPSILONS, _POINTS = 200, 40, 60


@dataclass(frozen=True, eq=False)
class Curve:
    """What one client's releases by a plan amount to: δ for every ε, and so every test's errors.

    Attributes:
        epsilons: from 0 on.
        deltas: of each; an upper bound, by privacy loss distributions.
        epsilon: at the δ of the client's budget.
    """

    epsilons: Array
    deltas: Array
    epsilon: float

    def least_miss(self, false_alarms: Array) -> Array:
        """Return the smallest share of misses that any test with these false alarms can have."""
        x, e, d = false_alarms[:, None], np.exp(self.epsilons), self.deltas
        return np.asarray(np.maximum(np.maximum(1.0 - d - e * x, (1.0 - d - x) / e).max(axis=1), 0.0))


def claimed_curve(claims: Claims, group: int) -> Curve:
    """Return the curve of what this plan releases of a client, without what the client had spent before."""
    row = claims.plan.groups[group]
    spent = spending(replace(row, group=replace(row.group, already_spent=())).charges())
    epsilon = float(spent.epsilon(row.group.budget.delta)[0])
    epsilons = np.linspace(0.0, 1.2 * max(epsilon, 0.5), _EPSILONS)
    return Curve(epsilons, np.array([float(spent.delta(one)[0]) for one in epsilons]), epsilon)


def likelihood_ratios(claims: Claims, trials: Trials, group: int) -> tuple[Array, Array]:
    """Return the logarithm of how much likelier all that was seen of a trial is with data, of trials with and without.

    In a round it is 1 − q + q exp(s μ − μ²/2), s being what is seen and μ the signal in units of the noise.
    """
    found = []
    for is_present in (True, False):
        own = (trials.group == group) & (trials.present == is_present)
        seen, signal = trials.seen[own], trials.signal[own]
        with np.errstate(divide="ignore"):  # a rate of 1 leaves nothing of the other world, whose logarithm is −∞
            rest, own_rate = np.log1p(-claims.rates[group]), np.log(claims.rates[group])
        found.append(np.logaddexp(rest, own_rate + seen * signal - np.square(signal) / 2.0).sum(axis=1))
    return found[0], found[1]


@dataclass(frozen=True)
class Evidence:
    """How far the attack on one group came, beside the claim.

    Attributes:
        group: its name.
        trials: with data and without, together.
        budget: ε of the group's budget.
        epsilon: claimed, of this plan alone, at the plan's δ, by privacy loss distributions.
        by_counting: a lower bound on ε from the errors of the best threshold, at `CONFIDENCE`.
        by_gaussian: a weaker kind of bound: what a Gaussian mechanism would have to be for means so far apart.
        false_alarms: of thresholds, for the picture.
        misses: of the same thresholds.
        least_misses: that the claim allows at these false alarms.
    """

    group: str
    trials: int
    budget: float
    epsilon: float
    by_counting: float
    by_gaussian: float
    false_alarms: tuple[float, ...]
    misses: tuple[float, ...]
    least_misses: tuple[float, ...]


def attack(arm: str, claims: Claims, trials: Trials, group: int) -> tuple[list[Finding], Evidence]:
    """Try to refute the promise to a group, in both directions, and say how far that came."""
    row, curve = claims.plan.groups[group], claimed_curve(claims, group)
    present, absent = likelihood_ratios(claims, trials, group)
    findings, bounds = [], [0.0]
    for direction, ours, theirs in (("with data", present, absent), ("without data", -absent, -present)):
        says, p = refutation(curve, ours, theirs)
        findings.append(Finding(arm, f"trade-off {direction}", says, row.group.name, p=p, trials=len(ours)))
        bounds.append(bound_by_counting(ours, theirs, row.group.budget.delta))
    thresholds = np.quantile(np.concatenate([present, absent]), np.linspace(0.0, 1.0, _POINTS))
    alarms, misses = (np.array([test(t) for t in thresholds]) for test in (_share_above(absent), _share_below(present)))
    evidence = Evidence(
        row.group.name,
        len(present) + len(absent),
        row.group.budget.epsilon,
        curve.epsilon,
        max(bounds),
        bound_by_gaussian(present, absent, row.group.budget.delta),
        tuple(alarms.tolist()),
        tuple(misses.tolist()),
        tuple(curve.least_miss(alarms).tolist()),
    )
    return findings, evidence


def refutation(curve: Curve, ours: Array, theirs: Array) -> tuple[str, float]:
    """Test P[ours > τ] ≤ e^ε P[theirs > τ] + δ(ε), τ and ε chosen on one half of the trials; returns a p-value."""
    thresholds = _thresholds(ours, theirs)
    hits, alarms = (_counts(part[::2], thresholds)[:, None] for part in (ours, theirs))
    n, m, factor = len(ours[::2]), len(theirs[::2]), np.exp(curve.epsilons)
    hit, alarm = (hits + 0.5) / (n + 1.0), (alarms + 0.5) / (m + 1.0)
    spread = np.sqrt(hit * (1.0 - hit) / n + factor**2 * alarm * (1.0 - alarm) / m)
    margin = (hit - factor * alarm - curve.deltas) / spread
    best, at = np.unravel_index(int(np.argmax(margin)), margin.shape)
    tau, epsilon, delta = float(thresholds[best]), float(curve.epsilons[at]), float(curve.deltas[at])
    k, j = int((ours[1::2] > tau).sum()), int((theirs[1::2] > tau).sum())
    n, m = len(ours[1::2]), len(theirs[1::2])
    allowed = min(1.0, math.exp(epsilon) * j / m + delta)
    says = f"the best event happens in {k / n:.4f} of the trials; {allowed:.4f} is allowed at ε = {epsilon:.2f}"
    return says, _level(lambda level: _lower(k, n, level / 2) - math.exp(epsilon) * _upper(j, m, level / 2) > delta)


def bound_by_counting(ours: Array, theirs: Array, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return a lower bound on ε: no smaller one allows these errors of a threshold chosen on the other half.

    With n trials it cannot exceed log n by much, however little privacy there is.
    """
    level = (1.0 - confidence) / 4.0  # two shares, two directions
    thresholds = _thresholds(ours, theirs)

    def bound(k: int, n: int, j: int, m: int) -> float:
        hit = _lower(k, n, level) - delta
        return math.log(hit / _upper(j, m, level)) if hit > 0.0 else -math.inf

    n, m = len(ours[::2]), len(theirs[::2])
    pairs = zip(_counts(ours[::2], thresholds), _counts(theirs[::2], thresholds), strict=True)
    best = thresholds[int(np.argmax([bound(int(k), n, int(j), m) for k, j in pairs]))]
    tested = ours[1::2], theirs[1::2]
    return max(0.0, bound(*(int(v) for part in tested for v in ((part > best).sum(), len(part)))))


def bound_by_gaussian(present: Array, absent: Array, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the ε of a Gaussian mechanism whose worlds are as far apart, at least, as means of the two kinds.

    It is no bound for anything else than a Gaussian mechanism, so it is no evidence against a claim. Means that are
    the wrong way round are no evidence of anything.
    """
    spread = math.sqrt((present.var() + absent.var()) / 2.0)
    if not spread > 0.0:
        return 0.0
    distance = float(present.mean() - absent.mean()) / spread
    error = math.sqrt(1.0 / len(present) + 1.0 / len(absent) + distance**2 / (2.0 * (len(present) + len(absent))))
    mu = distance - float(stats.norm.ppf(confidence)) * error
    return float(GaussianSpending(np.array([mu * mu])).epsilon(delta)[0]) if mu > 0.0 else 0.0


def _thresholds(ours: Array, theirs: Array) -> Array:
    return np.unique(np.quantile(np.concatenate([ours[::2], theirs[::2]]), np.linspace(0.0, 1.0, _THRESHOLDS)))


def _counts(values: Array, thresholds: Array) -> Array:
    """How many values are above each threshold."""
    return np.asarray(len(values) - np.searchsorted(np.sort(values), thresholds, side="right"), np.float64)


def _share_above(values: Array) -> Callable[[float], float]:
    return lambda threshold: float((values > threshold).mean())


def _share_below(values: Array) -> Callable[[float], float]:
    return lambda threshold: float((values <= threshold).mean())


def _lower(hits: int, trials: int, level: float) -> float:
    """The lower end of Clopper and Pearson's interval."""
    return _found(stats.beta.ppf, level, hits, trials - hits + 1, otherwise=0.0) if hits else 0.0


def _upper(hits: int, trials: int, level: float) -> float:
    """The upper end of Clopper and Pearson's interval."""
    return _found(stats.beta.isf, level, hits + 1, trials - hits, otherwise=1.0) if hits < trials else 1.0


def _found(quantile: Callable[..., float], *arguments: float, otherwise: float) -> float:
    """A quantile; one so far out that the search for it gives up is no evidence."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(quantile(*arguments))
        except RuntimeWarning:
            return otherwise


def _level(refuted: Callable[[float], bool]) -> float:
    """The smallest level at which a test refutes, to a thousandth of its logarithm; 1 where there is none."""
    if not refuted(1.0):
        return 1.0
    low, high = -300.0, 0.0
    for _ in range(20):
        middle = (low + high) / 2.0
        low, high = (low, middle) if refuted(10.0**middle) else (middle, high)
    return float(10.0**high)
