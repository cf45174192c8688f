"""What clients bring: a budget, and the group of clients that share one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nestegg.accounting import MAX_NOISE, MIN_NOISE, Charge
from nestegg.checks import MAX_CLIENTS, MAX_ROUNDS, positive, probability, rate, whole
from nestegg.errors import InputError


@dataclass(frozen=True)
class Budget:
    """A client's whole privacy budget (ε_n, δ).

    The promise is about an enrolled client's data being there or not (zero-out adjacency): with that data or without
    it, what is released has nearly the same distribution. Who is enrolled, with which budgets and rates, is public.
    """

    epsilon: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta))


@dataclass(frozen=True, init=False)
class Group:
    """Clients that share (ε, q_n, T_n). A plan is computed per group, never per client.

    Attributes:
        name: unique within a federation.
        clients: how many there are. Give a number, or the clients' names.
        budget: what each of them may spend in all rounds together.
        saving_rate: q_n, the sampling rate while saving; by default the spending rate, so that nothing is saved.
        transition: T_n, the first spending round; 1 never saves. By default the middle of training.
        members: the clients' names, if they were given. Plans are public and names are not: no file of a plan has them.
        already_spent: releases that count against the budget: an earlier run, lost rounds.

    >>> Group("strict", ["ada", "bob"], Budget(10.0)).clients
    2
    """

    name: str
    clients: int
    budget: Budget
    saving_rate: float | None = None
    transition: int | None = None
    members: tuple[str, ...] = field(default=(), compare=False, repr=False)
    already_spent: tuple[Charge, ...] = ()

    def __init__(
        self,
        name: str,
        clients: int | Sequence[str],
        budget: Budget,
        saving_rate: float | None = None,
        transition: int | None = None,
        members: Sequence[str] = (),
        already_spent: Sequence[Charge] = (),
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"name = {name!r} must be a word: every group has a name.")
        where = f"group {name!r}"
        if not isinstance(budget, Budget):
            raise InputError(f"{where}: budget = {budget!r} must be a Budget, as in Budget(10.0).")
        if isinstance(clients, Sequence) and not isinstance(clients, str):
            members, clients = clients, len(clients)
        count = whole(f"{where}: clients", clients, 1, MAX_CLIENTS)  # type: ignore[arg-type]
        if members and len(members) != count:
            raise InputError(
                f"{where}: members has {len(members)} names; there must be one for each of {count} clients."
            )
        values = {
            "name": name,
            "clients": count,
            "budget": budget,
            "saving_rate": None if saving_rate is None else rate(f"{where}: saving_rate", saving_rate),
            "transition": None if transition is None else whole(f"{where}: transition", transition, 1, MAX_ROUNDS),
            "members": tuple(members),
            "already_spent": tuple(already_spent) if isinstance(already_spent, Sequence) else (already_spent,),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def resolved(self, rounds: int, spending_rate: float) -> Group:
        """The same group with its defaults for a training of so many rounds written out."""
        saving_rate = spending_rate if self.saving_rate is None else self.saving_rate
        transition = rounds // 2 + 1 if self.transition is None else self.transition
        return replace(
            self,
            saving_rate=saving_rate,
            transition=transition if saving_rate < spending_rate else 1,
            already_spent=checked_charges(f"group {self.name!r}: already_spent", self.already_spent),
        )


def check_federation(groups: Sequence[Group], rounds: int, spending_rate: float, *, may_save: bool = True) -> None:
    """What must hold between groups: names differ, one δ, and members are in one group each.

    What groups have already spent are releases that exist. Where groups may save, saving rates are not above the
    spending rate, and transitions are in time.
    """
    whole("rounds", rounds, 1, MAX_ROUNDS)
    rate("spending_rate", spending_rate)
    if not groups or not all(isinstance(group, Group) for group in groups):
        raise InputError("groups must be a list of at least one Group.")
    for name, count in Counter(group.name for group in groups).items():
        if count > 1:
            raise InputError(f"groups: the name {name!r} is used {count} times.")
    for group in groups:
        if group.budget.delta != groups[0].budget.delta:
            raise InputError(
                f"group {group.name!r}: delta = {group.budget.delta!r} must equal that of the other groups, "
                f"{groups[0].budget.delta!r}."
            )
        if may_save and group.saving_rate is not None:
            rate(f"group {group.name!r}: saving_rate", group.saving_rate, spending_rate, "spending_rate")
        if may_save and group.transition is not None:
            whole(f"group {group.name!r}: transition", group.transition, 1, rounds)
        checked_charges(f"group {group.name!r}: already_spent", group.already_spent)
    _check_members(groups)


def _check_members(groups: Sequence[Group]) -> None:
    for group in groups:
        for name in group.members:
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"group {group.name!r}: a client's name is {name!r}; it must be a word.")
    times = Counter(name for group in groups for name in group.members)
    if len(times) < times.total():
        name, count = times.most_common(1)[0]
        raise InputError(f"groups: the client {name!r} is there {count} times.")


def checked_charges(field: str, charges: Sequence[Sequence[float]]) -> tuple[Charge, ...]:
    """Charges that are releases that exist."""
    if not isinstance(charges, Sequence):
        raise InputError(f"{field}: {charges!r} must be a list of charges, as in [Charge(0.9, 2.0)].")
    return tuple(_checked_charge(field, charge) for charge in charges)


def _checked_charge(field: str, charge: Sequence[float]) -> Charge:
    """A charge whose numbers make sense."""
    try:
        q, sigma, rounds = (*charge, 1) if len(charge) == 2 else charge
        sound = (
            0.0 <= q <= 1.0 and MIN_NOISE <= sigma <= MAX_NOISE and rounds == int(rounds) and 1 <= rounds <= MAX_ROUNDS
        )
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise InputError(
            f"{field}: {charge!r} must be a rate from 0 to 1, a noise multiplier from {MIN_NOISE:g} to {MAX_NOISE:g}, "
            "and a whole number of rounds."
        )
    return Charge(float(q), float(sigma), int(rounds))


def at_smallest_budget(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The DP-FedAvg reduction: everyone at the smallest ε of the federation, so that nobody is over."""
    smallest = min((group.budget for group in groups), key=lambda budget: budget.epsilon)
    return tuple(replace(group, budget=smallest) for group in groups)


def split_clients(clients: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Counts that sum to `clients`, nearest to the shares by largest remainder; ties go to the earlier share.

    >>> split_clients(10, [0.34, 0.43, 0.23])
    (4, 4, 2)
    """
    exact = clients * np.asarray(shares)
    counts = np.floor(exact + 1e-9).astype(int)  # a share of 0.29 of 100 clients is 28.999… in floating point
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: clients - int(counts.sum())]] += 1
    return tuple(int(count) for count in counts)
