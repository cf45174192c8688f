"""What clients bring: a budget, and the group of clients that share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

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


@dataclass(frozen=True)
class Group:
    """Clients that share (ε, q_n, T_n). A plan is computed per group, never per client.

    Attributes:
        name: unique within a federation.
        clients: how many there are.
        budget: what each of them may spend in all rounds together.
        saving_rate: q_n, the sampling rate while saving; by default the spending rate, so that nothing is saved.
        transition: T_n, the first spending round; 1 never saves. By default the middle of training.
    """

    name: str
    clients: int
    budget: Budget
    saving_rate: float | None = None
    transition: int | None = None
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"name = {self.name!r} must be a word: every group has a name.")
        if not isinstance(self.budget, Budget):
            raise InputError(f"group {self.name!r}: budget = {self.budget!r} must be a Budget, as in Budget(10.0).")
        where = f"group {self.name!r}"
        object.__setattr__(self, "clients", whole(f"{where}: clients", self.clients, 1, MAX_CLIENTS))
        if self.saving_rate is not None:
            object.__setattr__(self, "saving_rate", rate(f"{where}: saving_rate", self.saving_rate))
        if self.transition is not None:
            object.__setattr__(self, "transition", whole(f"{where}: transition", self.transition, 1, MAX_ROUNDS))

    def resolved(self, rounds: int, spending_rate: float) -> Group:
        """The same group with its defaults for a training of so many rounds written out."""
        saving_rate = spending_rate if self.saving_rate is None else self.saving_rate
        transition = rounds // 2 + 1 if self.transition is None else self.transition
        return replace(self, saving_rate=saving_rate, transition=transition if saving_rate < spending_rate else 1)


def check_federation(groups: Sequence[Group], rounds: int, spending_rate: float) -> None:
    """What must hold between groups: names differ, one δ, rates below the spending rate, transitions in time."""
    whole("rounds", rounds, 1, MAX_ROUNDS)
    rate("spending_rate", spending_rate)
    if not groups or not all(isinstance(group, Group) for group in groups):
        raise InputError("groups must be a list of at least one Group.")
    names = [group.name for group in groups]
    for group in groups:
        if names.count(group.name) > 1:
            raise InputError(f"groups: the name {group.name!r} is used {names.count(group.name)} times.")
        if group.budget.delta != groups[0].budget.delta:
            raise InputError(
                f"group {group.name!r}: delta = {group.budget.delta!r} must equal that of the other groups, "
                f"{groups[0].budget.delta!r}."
            )
        if group.saving_rate is not None:
            rate(f"group {group.name!r}: saving_rate", group.saving_rate, spending_rate, "spending_rate")
        if group.transition is not None:
            whole(f"group {group.name!r}: transition", group.transition, 1, rounds)


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
