"""Who holds an account: clients by name, and peers.

Peers are clients with the same budget and rule that took part in the same groups, and so have the same account. A
ledger never computes per client: a million clients in a thousand groups are a thousand peers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, func, select

from nestegg.checks import suggestion
from nestegg.errors import InputError
from nestegg.ledger.database import CHUNK, insert_rows
from nestegg.ledger.rules import Rule
from nestegg.ledger.schema import budgets, clients, groups, members, spellings, withdrawals
from nestegg.planning import Budget


class Client(NamedTuple):
    """A client, by its number and by its name as the ledger has it."""

    number: int
    name: str


def checked_name(name: str) -> str:
    """A client's name, which is the same however it is written down: in Unicode's form NFC."""
    if not name or name != name.strip() or not name.isprintable():
        raise InputError(f"client = {name!r} must be a name without spaces around it or unprintable characters.")
    return unicodedata.normalize("NFC", name)


def known_clients(connection: Connection, names: Sequence[str]) -> dict[str, Client]:
    """The clients among these that are known, by names in the form NFC; version 1 may have written them otherwise."""
    found: dict[str, Client] = {}
    for start in range(0, len(names), CHUNK):
        wanted = names[start : start + CHUNK]
        as_written = select(clients.c.name.label("form"), clients).where(clients.c.name.in_(wanted))
        otherwise = select(spellings.c.name.label("form"), clients).join(clients).where(spellings.c.name.in_(wanted))
        for query in (as_written, otherwise):
            found |= {form: Client(*row) for form, *row in connection.execute(query)}
    return found


def find_client(connection: Connection, name: str, place: str) -> Client:
    """The client of a name.

    Raises:
        InputError: it is not known; the sentence offers a name that is near.
    """
    wanted = checked_name(name)
    known = known_clients(connection, [wanted])
    if wanted not in known:
        raise InputError(f"{place} knows no client {name!r}.{near(connection, name)}")
    return known[wanted]


def near(connection: Connection, name: str) -> str:
    """A sentence that offers a known name, or nothing. It looks at the first few thousand."""
    return suggestion(name, connection.execute(select(clients.c.name).limit(CHUNK)).scalars())


def all_clients(connection: Connection, names: Sequence[str]) -> dict[str, Client]:
    """The clients of these names; those not known become so."""
    known = known_clients(connection, names)
    last = connection.execute(select(func.max(clients.c.client))).scalar() or 0
    fresh = [Client(last + i, name) for i, name in enumerate((n for n in names if n not in known), 1)]
    insert_rows(connection, clients, fresh)
    return known | {client.name: client for client in fresh}


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


def withdrawn_places(connection: Connection, run: int) -> list[int | None]:
    """The places of a run's members that have withdrawn; None where they were not kept."""
    query = select(members.c.place).join(withdrawals, members.c.client == withdrawals.c.client).join(groups)
    return list(connection.execute(query.where(groups.c.run == run)).scalars())


def _named(connection: Connection, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    for start in range(0, len(numbers), 1000):
        chosen = clients.c.client.in_(numbers[start : start + 1000])
        yield from connection.execute(select(clients.c.client, clients.c.name).where(chosen))
