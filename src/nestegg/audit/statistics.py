"""Statistics of trials, the cheapest first: each compares what was seen with exactly what the plan claims."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats
from scipy.special import ndtr

from nestegg.accounting import Array
from nestegg.audit.claims import Claims
from nestegg.audit.findings import Finding
from nestegg.audit.trials import Noise, Trials

# A sum is as good as normal from this variance on, if it is no more skewed than that: p-values of 10^−5 are then right
# to a few per cent. Products of rare draws are far more skewed than the draws.
_NORMAL, _SKEWED = 20.0, 0.03


def of_everybody(arm: str, trials: Trials) -> Iterator[Finding]:
    """Attack what all groups share: the total noise, and that it is drawn anew for everything."""
    kinds = {"noise": trials.noise, "noise after withdrawals": trials.withdrawn, "noise of bits": trials.bits}
    yield from (noise_size(arm, attack, noise) for attack, noise in kinds.items() if noise.count)
    yield from (noise_repeated(arm, neighbours, trials.noise) for neighbours in trials.noise.products)


def of_group(arm: str, claims: Claims, trials: Trials, group: int) -> Iterator[Finding]:
    """Attack what a group is promised: its rate, its clip norm, and the mixture that an adversary sees."""
    name = claims.plan.groups[group].group.name
    yield from sampling(arm, claims, trials, group)
    drawn = trials.drawn[(trials.group == group) & trials.present].any()
    for found in (*([signal(arm, trials, group)] if drawn else []), *mixtures(arm, claims, trials, group)):
        yield Finding(**{**vars(found), "group": name})


def noise_size(arm: str, attack: str, noise: Noise) -> Finding:
    """Compare the size of noise with the claim: the sum of squares is χ² distributed."""
    p = 2.0 * min(stats.chi2.cdf(noise.squares, noise.count), stats.chi2.sf(noise.squares, noise.count))
    size = math.sqrt(noise.squares / noise.count)
    return Finding(arm, attack, f"noise is {size:.4f} of what is claimed", p=float(min(p, 1.0)), trials=noise.count)


def noise_repeated(arm: str, neighbours: str, noise: Noise) -> Finding:
    """Look for noise that tells of other noise."""
    count, total = noise.products[neighbours]
    says = f"noise of neighbouring {neighbours} correlates by {total / max(count, 1):+.4f}; 0 is claimed"
    return Finding(
        arm, f"noise across {neighbours}", says, p=_two_sided(total / math.sqrt(max(count, 1))), trials=count
    )


def sampling(arm: str, claims: Claims, trials: Trials, group: int) -> Iterator[Finding]:
    """Compare how often clients of a group were drawn with their rates, and look for draws that tell of others."""
    name, rates = claims.plan.groups[group].group.name, claims.rates[group]
    drawn = trials.drawn[trials.group == group].astype(np.float64)
    off, variance = drawn - rates, np.broadcast_to(rates * (1.0 - rates), drawn.shape)
    certain = rates == 1.0
    if certain.any():
        missed = int((off[:, certain] != 0.0).sum())
        says = f"missed {missed} times in rounds that all take part in"
        yield Finding(arm, "sampling where all take part", says, name, refutes=missed > 0, trials=int(certain.sum()))
    if certain.all():
        return
    hits, trials_of, own = drawn[:, ~certain].sum(axis=0), len(drawn), rates[~certain]
    says = f"drawn {drawn.mean():.4f} of the time; {rates.mean():.4f} is claimed"
    # Draws by different rates vary less than as many by their mean rate: the p-value is not too small (Hoeffding 1956).
    p = float(_count(hits.sum(), trials_of * len(own), own.mean()))
    yield Finding(arm, "sampling", says, name, p=p, trials=drawn.size)
    by_round = _count(hits, trials_of, own)
    worst = int(np.flatnonzero(~certain)[np.argmin(by_round)])
    says = f"round {worst + 1} is farthest off: drawn {drawn[:, worst].mean():.3f}, claimed {rates[worst]:.3f}"
    p = float(-np.expm1(len(own) * np.log1p(-min(by_round.min(), 1.0 - 1e-16))))  # of the smallest of so many
    yield Finding(arm, "sampling by round", says, name, p=p, trials=drawn.size)
    lean = variance * (1.0 - 2.0 * rates)
    for attack, one, next_ in (
        ("sampling of neighbours", np.s_[1:], np.s_[:-1]),
        ("sampling across rounds", np.s_[:, 1:], np.s_[:, :-1]),
    ):
        width = (variance[one] * variance[next_]).sum()
        if width >= _NORMAL and abs((lean[one] * lean[next_]).sum()) <= _SKEWED * width**1.5:
            together = (off[one] * off[next_]).sum()
            says = f"draws go together by {together / width:+.4f}; 0 is claimed"
            yield Finding(arm, attack, says, name, p=_two_sided(together / math.sqrt(width)), trials=drawn.size)


def signal(arm: str, trials: Trials, group: int) -> Finding:
    """Compare what a canary that was drawn adds with its clip norm."""
    own = (trials.group == group) & trials.present
    drawn = trials.drawn[own]
    seen, whole = trials.seen[own][drawn], trials.signal[own][drawn]
    # The best estimate of the share of the norm that is added: precise rounds count more.
    share = float((seen * whole).sum() / np.square(whole).sum())
    z = (share - 1.0) * math.sqrt(np.square(whole).sum())
    says = f"a canary adds {share:.4f} of its clip norm; 1 is claimed"
    return Finding(arm, "signal", says, p=_two_sided(z), trials=len(seen))


def mixtures(arm: str, claims: Claims, trials: Trials, group: int) -> Iterator[Finding]:
    """Compare the distribution of what is seen, with data and without, with the claimed one (Kolmogorov–Smirnov)."""
    for is_present in (True, False):
        own = (trials.group == group) & (trials.present == is_present)
        rates = claims.rates[group] if is_present else np.zeros_like(claims.rates[group])
        uniform = mixture_cdf(trials.seen[own], trials.signal[own], rates).ravel()
        test = stats.kstest(uniform, "uniform")
        world = "with" if is_present else "without"
        says = f"what is seen {world} its data is at most {test.statistic:.4f} from the claimed distribution"
        yield Finding(arm, f"distribution {world} data", says, p=float(test.pvalue), trials=len(uniform))


def mixture_cdf(seen: Array, signal: Array, rates: Array) -> Array:
    """Return the probability of seeing less: of noise alone, or with probability q of noise around the signal."""
    return np.asarray((1.0 - rates) * ndtr(seen) + rates * ndtr(seen - signal))


def _count(hits: Array, trials: int, rates: Array) -> Array:
    """Return the p-values of counts, exactly, in both directions."""
    tails = np.minimum(stats.binom.cdf(hits, trials, rates), stats.binom.sf(hits - 1, trials, rates))
    return np.asarray(np.minimum(1.0, 2.0 * tails))


def _two_sided(z: float) -> float:
    return float(min(1.0, 2.0 * ndtr(-abs(z))))
