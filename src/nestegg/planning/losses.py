"""What a client's releases amount to by privacy loss distributions: ε, and the advantage of the best guesser.

A plan of many rounds has nearly as many different releases, and building their distributions takes nearly all the
time. So noise multipliers that are close to each other are rounded down to the smallest of them. Less noise spends
more, as more noise could be added to it afterwards: what is found is an upper bound, close to what exact noise gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nestegg.accounting import Charge, PldAccountant, PldSpending, merged
from nestegg.planning.accounts import pld_accountant

# A noise multiplier is rounded down by at most this share of it. Measured for the paper's groups over 1,000 rounds,
# ε is 2e-4 to 5e-4 above that of exact noise, relatively.
WIDTH = 2e-3
# So many different releases are left as they are: they take a second at most.
_FEW = 64


class Loss(NamedTuple):
    """Everything that was released, in two numbers.

    Attributes:
        epsilon: at the δ that was asked for.
        advantage: how much better than a coin anybody can tell whether a client's data is there: δ at ε = 0.
    """

    epsilon: float
    advantage: float


def loss(charges: tuple[Charge, ...], delta: float, width: float = WIDTH, refine: float = 1.0) -> Loss:
    """Return what charges amount to.

    Args:
        charges: with noise, all of them.
        delta: of the budget.
        width: how far a noise multiplier may be rounded down where there are many, as a share of it; 0 is exact.
        refine: width of a cell, in units of the usual one.
    """
    return _loss(pld_accountant(charges, refine), _few(charges, width), delta)


def spending(charges: tuple[Charge, ...], width: float = WIDTH) -> PldSpending:
    """Return charges with noise as one privacy loss distribution; `loss` tells of its arguments."""
    return _composed(pld_accountant(charges, 1.0), _few(charges, width))


@lru_cache(maxsize=1024)
def _loss(accountant: PldAccountant, charges: tuple[Charge, ...], delta: float) -> Loss:
    spent = _composed(accountant, charges)
    return Loss(float(spent.epsilon(delta)[0]), float(spent.delta(0.0)[0]))


def _few(charges: tuple[Charge, ...], width: float) -> tuple[Charge, ...]:
    return rounded_down(charges, width) if len(charges) > _FEW else charges


def rounded_down(charges: Sequence[Charge], width: float) -> tuple[Charge, ...]:
    """The same charges, noise multipliers that are at most `width` above a smaller one replaced by it.

    >>> [tuple(charge) for charge in rounded_down([Charge(0.5, 2.001), Charge(0.5, 2.0), Charge(0.5, 2.1, 3)], 1e-3)]
    [(0.5, 2.0, 2), (0.5, 2.1, 3)]
    """
    found: list[Charge] = []
    for charge in sorted(charges):
        last = found[-1] if found else charge
        is_close = charge.noise_multiplier <= last.noise_multiplier * (1.0 + width)
        same = charge.sampling_rate == last.sampling_rate and is_close
        found.append(charge._replace(noise_multiplier=last.noise_multiplier) if same else charge)
    return merged(found)


def _composed(accountant: PldAccountant, charges: Sequence[Charge]) -> PldSpending:
    """All charges as one spending, composed by twos: transforms of long distributions are few."""
    alone = ((accountant.spend(q, sigma), count) for q, sigma, count in charges)
    parts = [spent * count if count > 1 else spent for spent, count in alone]
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]
