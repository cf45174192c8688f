"""Who holds an account: clients by name, and peers.

Peers are clients with the same budget and rule that took part in the same groups, and so have the same account. A
ledger never computes per client: a million clients in a thousand groups are a thousand peers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, func, select

from nestegg.checks import suggestion
from nestegg.errors import InputError
from nestegg.ledger.rules import Rule
from nestegg.ledger.schema import CHUNK, budgets, clients, groups, insert_rows, members, spellings, withdrawals
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


class AccountKey(NamedTuple):
    """All that an account depends on.

    Attributes:
        budget: for life.
        rule: by which the account is kept.
        groups: numbers of the groups the client is in, over all runs.
        withdrawn: the entry by which it withdrew, or None.
    """

    budget: Budget
    rule: Rule
    groups: tuple[int, ...]
    withdrawn: int | None


class Peers(NamedTuple):
    """Clients with one `AccountKey`, whose fields come first: how many they are, and one of them."""

    budget: Budget
    rule: Rule
    groups: tuple[int, ...]
    withdrawn: int | None
    clients: int
    example: str


def find_peers(connection: Connection, run: int | None = None) -> list[Peers]:
    """The peers among all clients, or among the members of a run."""
    counts: dict[AccountKey, list[int]] = {}
    for client, key in each_client(connection, run):
        counts.setdefault(key, [client, 0])[1] += 1
    names = dict(_named(connection, [first for first, _ in counts.values()]))
    return [Peers(*key, count, names.get(first, f"number {first}")) for key, (first, count) in counts.items()]


def each_client(connection: Connection, run: int | None = None) -> Iterator[tuple[int, AccountKey]]:
    """Number and account key of every client, or of every member of a run, in the order of their numbers."""
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
        yield client, AccountKey(*_terms(epsilon, delta, rule, order), own, gone.get(client))


@lru_cache(maxsize=4096)  # many clients have the same
def _terms(epsilon: float, delta: float, rule: str | None, order: float | None) -> tuple[Budget, Rule]:
    return Budget(epsilon, delta), Rule(rule or "fixed", order)


def withdrawn_places(connection: Connection, run: int) -> list[int | None]:
    """The places of a run's members that have withdrawn; None where they were not kept."""
    query = select(members.c.place).join(withdrawals, members.c.client == withdrawals.c.client).join(groups)
    return list(connection.execute(query.where(groups.c.run == run)).scalars())


def names_by_place(connection: Connection, run: int) -> list[str]:
    """The names of a run's members in the order of their places."""
    query = select(clients.c.name).join(members, members.c.client == clients.c.client).join(groups)
    return list(connection.execute(query.where(groups.c.run == run).order_by(members.c.place)).scalars())


def _named(connection: Connection, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    for start in range(0, len(numbers), 1000):
        chosen = clients.c.client.in_(numbers[start : start + 1000])
        yield from connection.execute(select(clients.c.client, clients.c.name).where(chosen))
