"""Peers: clients with the same budget and rule that took part in the same groups, and so have the same account.

A ledger never computes per client. A million clients in a thousand groups are a thousand peers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Table, select

from nestegg.accounting import Accountant, Array, Charge, S, Spending, compose
from nestegg.ledger.rules import Rule
from nestegg.ledger.tables import budgets, clients, groups, members, withdrawals
from nestegg.planning import Budget

# Curves are sums of many terms, and a sum depends on its order by this much at most. Nothing else is forgiven.
_ROUNDING = 1e-12


class Standing(NamedTuple):
    """All that an account depends on.

    Attributes:
        epsilon: of the budget, for life.
        delta: of the budget.
        rule: by which it is kept.
        order: of that rule.
        groups: numbers of the groups the client is in, over all runs.
        withdrawn: the entry by which it withdrew.
    """

    epsilon: float
    delta: float
    rule: str
    order: float | None
    groups: tuple[int, ...]
    withdrawn: int | None


@dataclass(frozen=True)
class Peers:
    """Clients that are alike.

    Attributes:
        budget: of each of them, for life.
        rule: of their accounts.
        groups: numbers of the groups they are in, over all runs.
        clients: how many they are.
        example: one of them.
        withdrawn: the entry by which they withdrew, or None.
    """

    budget: Budget
    rule: Rule
    groups: tuple[int, ...]
    clients: int
    example: str
    withdrawn: int | None = None

    @classmethod
    def of(cls, standing: Standing, clients: int, example: str) -> Peers:
        """Clients that stand alike."""
        epsilon, delta, rule, order, taken, withdrawn = standing
        return cls(Budget(epsilon, delta), Rule(rule, order), taken, clients, example, withdrawn)


def find_peers(connection: Connection, run: int | None = None) -> list[Peers]:
    """The peers among all clients, or among the members of a run."""
    counts: dict[Standing, list[int]] = {}
    for client, standing in each_client(connection, run):
        counts.setdefault(standing, [client, 0])[1] += 1
    names = dict(_named(connection, [first for first, _ in counts.values()]))
    return [
        Peers.of(standing, count, names.get(first, f"number {first}")) for standing, (first, count) in counts.items()
    ]


def each_client(connection: Connection, run: int | None = None) -> Iterator[tuple[int, Standing]]:
    """Number and standing of every client, or of every member of a run, in the order of their numbers."""
    inside = select(members.c.client).join(groups).where(groups.c.run == run)
    gone = dict(connection.execute(select(withdrawals.c.client, withdrawals.c.entry)).all())

    def rows(table: Table) -> Iterator[tuple[int, list[Any]]]:
        query = select(table).order_by(*table.primary_key)
        chosen = query if run is None else query.where(table.c.client.in_(inside))
        for client, found in groupby(connection.execute(chosen), itemgetter(0)):
            yield client, list(found)

    given, taken = rows(budgets), rows(members)
    member, memberships = next(taken, (None, []))
    for client, history in given:
        own: tuple[int, ...] = ()
        if member == client:
            own = tuple(row[1] for row in memberships)
            member, memberships = next(taken, (None, []))
        _, _, epsilon, delta, rule, order = history[-1]
        yield client, Standing(epsilon, delta, rule or "fixed", order, own, gone.get(client))


def spending(accountant: Accountant[S], charges: Sequence[Sequence[Charge]]) -> S:
    """What is spent by each of several lists of charges: a row a list."""
    total = accountant.spend(np.zeros(max(len(charges), 1)), 1.0)  # nobody has spent anything
    for row, charged in enumerate(charges):
        if charged:
            total = total.replaced(np.array([row]), compose(accountant, charged))
    return total


def epsilons(spent: Spending, peers: Sequence[Peers]) -> Array:
    """Every peers' ε, each at their own δ."""
    result = np.zeros(len(peers))
    deltas = np.array([one.budget.delta for one in peers])
    for delta in np.unique(deltas):
        rows = np.flatnonzero(deltas == delta)
        result[rows] = spent.rows(rows).epsilon(float(delta))
    return result


def is_over(epsilon: float, budget: float) -> bool:
    """Whether more is spent than a budget."""
    return epsilon > budget * (1.0 + _ROUNDING)


def _named(connection: Connection, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    for start in range(0, len(numbers), 1000):
        chosen = clients.c.client.in_(numbers[start : start + 1000])
        yield from connection.execute(select(clients.c.client, clients.c.name).where(chosen))
