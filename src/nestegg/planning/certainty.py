"""A plan's promise in a number that people can judge: how often the best attacker is right.

The attacker knows everything but whether one client's data is there, and holds both for equally likely. It sees every
model, and guesses. No guess is right more often than (1 + δ(0))/2, where δ(0), the δ at ε = 0, is the distance of both
worlds in total variation: the point of the trade-off curve at which false alarms and misses are fewest.
"""

from __future__ import annotations

import numpy as np
import scipy  # its `special` is slow to import, and comes when it is first used

from nestegg.accounting import Charge, GaussianSpending
from nestegg.errors import InputError
from nestegg.planning.losses import loss
from nestegg.planning.plan import GroupPlan


def certainty(row: GroupPlan, *, by_pld: bool = False) -> float:
    """Return how often the best attacker guesses right at most, from 0.5 to 1, once all rounds are done.

    Exact for clients that are in every round, or by privacy loss distributions, which take a moment. Without them,
    for clients that are sampled, it is the smaller of two bounds: as if they were in every round, and that of any
    mechanism with the same ε and δ.

    >>> from nestegg import Budget, Group, plan
    >>> (row,) = plan([Group("all", 100, Budget(10.0))], 25).groups
    >>> round(certainty(row), 3)
    0.841
    """
    charges, delta = row.charges(), row.group.budget.delta
    if by_pld or _is_bare(charges):
        return certainty_of(charges, delta)
    return min(_always_there(charges), 1.0 - (1.0 - delta) / (1.0 + float(np.exp(row.epsilon_spent[-1]))))


def certainty_of(charges: tuple[Charge, ...], delta: float) -> float:
    """Return how often the best attacker guesses right at most who sees all of some releases, of any number of runs.

    >>> round(certainty_of((Charge(1.0, 2.0, rounds=4),), 1e-5), 3)
    0.691
    """
    if _is_bare(charges):
        return 1.0
    if any(0.0 < q < 1.0 for q, _, _ in charges):
        return (1.0 + min(loss(charges, delta).advantage, 1.0)) / 2.0
    return _always_there(charges)


def epsilon_of_certainty(right: float, delta: float) -> float:
    """Return the ε at which the best attacker is right so often, of clients that are in every round.

    >>> round(epsilon_of_certainty(0.75, 1e-5), 2)
    6.21
    """
    if not 0.5 < right < 1.0:
        raise InputError(f"certainty = {right!r} must be above 0.5 and below 1.")
    mu = 2.0 * float(scipy.special.ndtri(right))
    return float(GaussianSpending(np.array([mu * mu])).epsilon(delta)[0])


def certainty_in_words(right: float) -> str:
    """Return what a certainty means to a person.

    >>> certainty_in_words(0.841)  # doctest: +ELLIPSIS
    "Somebody who is 50 % sure that a client's data is there, and sees every model, is right at most 84.1 % ..."
    """
    if right > 0.9995:
        return "Somebody who sees every model may find out for certain whether a client's data is there."
    return (
        "Somebody who is 50 % sure that a client's data is there, and sees every model, is right at most "
        f"{percent_right(right)} of the time."
    )


def percent_right(right: float) -> str:
    """Return a certainty in percent, rounded up: it is a bound.

    >>> percent_right(0.8181)
    '81.9 %'
    """
    return f"{np.ceil(right * 1e3 - 1e-6) / 10.0:.1f} %"


def _is_bare(charges: tuple[Charge, ...]) -> bool:
    """Whether something was released without noise."""
    return any(sigma == 0.0 for q, sigma, _ in charges if q > 0.0)


def _always_there(charges: tuple[Charge, ...]) -> float:
    squares = sum(count / sigma**2 for q, sigma, count in charges if q > 0.0)
    return (1.0 + float(GaussianSpending(np.array([squares])).delta(0.0)[0])) / 2.0
