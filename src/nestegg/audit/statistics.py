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

_NORMAL = 20.0  # variance from which on a count is as good as normal


def of_everybody(arm: str, trials: Trials) -> Iterator[Finding]:
    """Attack what all groups share: the total noise, and that it is drawn anew for everything."""
    kinds = {"noise": trials.noise, "noise after withdrawals": trials.withdrawn, "noise of bits": trials.bits}
    yield from (noise_size(arm, attack, noise) for attack, noise in kinds.items() if noise.count)
    yield from (noise_repeated(arm, neighbours, trials.noise) for neighbours in trials.noise.products)


def of_group(arm: str, claims: Claims, trials: Trials, group: int) -> Iterator[Finding]:
    """Attack what a group is promised: its rate, its clip norm, and the mixture that an adversary sees."""
    name = claims.plan.groups[group].group.name
    yield from sampling(arm, claims, trials, group)
    for found in (signal(arm, trials, group), *mixtures(arm, claims, trials, group)):
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
    if variance.sum() < _NORMAL:
        return
    says = f"drawn {drawn.mean():.4f} of the time; {rates.mean():.4f} is claimed"
    z = off.sum() / math.sqrt(variance.sum())
    yield Finding(arm, "sampling", says, name, p=_two_sided(z), trials=drawn.size)
    by_round, spread = off.sum(axis=0)[~certain], variance.sum(axis=0)[~certain]
    if spread.min() >= _NORMAL:
        worst = np.flatnonzero(~certain)[np.argmax(np.square(by_round) / spread)]
        says = f"round {worst + 1} is farthest off: drawn {drawn[:, worst].mean():.3f}, claimed {rates[worst]:.3f}"
        p = float(stats.chi2.sf((np.square(by_round) / spread).sum(), len(spread)))
        yield Finding(arm, "sampling by round", says, name, p=p, trials=drawn.size)
    together = (off[1:] * off[:-1]).sum() / math.sqrt(max((variance[1:] * variance[:-1]).sum(), 1e-300))
    says = "draws of one client tell nothing of the next" if abs(together) < 4 else "draws of clients go together"
    yield Finding(arm, "sampling of neighbours", says, name, p=_two_sided(together), trials=drawn.size)


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


def _two_sided(z: float) -> float:
    return float(min(1.0, 2.0 * ndtr(-abs(z))))
