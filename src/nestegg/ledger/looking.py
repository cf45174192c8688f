"""Cheap looks into a ledger, however many clients it has: none of them reads the whole log."""

from __future__ import annotations

import json
import unicodedata
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from nestegg.errors import InputError
from nestegg.ledger.holders import known_clients
from nestegg.ledger.log import CHARGING
from nestegg.ledger.schema import clients, entries, groups, members, runs

_LAST = "\U0010ffff"  # no name has it: it is not printable


class RunEntry(NamedTuple):
    """A run as its first entry has it.

    Attributes:
        name: of the run.
        began: day on which it began.
        rounds: that were reserved, those that had to be paid for again counted again.
        note: what is to be known of its results, as "not for release".
    """

    name: str
    began: str
    rounds: int
    note: str


def some_names(
    connection: Connection, prefix: str = "", *, after: str = "", run: str | None = None, count: int = 50
) -> list[str]:
    """Return names of clients in their order: those that begin with a prefix, come after a name, and are in a run.

    Raises:
        InputError: there is no such run.
    """
    begin = unicodedata.normalize("NFC", prefix)
    # Python's order, which is the bytes' order, whatever order a database has for people.
    name = clients.c.name if connection.dialect.name == "sqlite" else clients.c.name.collate("C")
    query = select(clients.c.name).where(name > after).order_by(name).limit(count)
    if begin:
        query = query.where(name >= begin, name < begin + _LAST)
    if run is not None:
        number = connection.execute(select(runs.c.run).where(runs.c.name == run)).scalar()
        if number is None:
            raise InputError(f"run = {run!r} is not in the ledger.")
        inside = select(members.c.client).join(groups).where(groups.c.run == number)
        query = query.where(inside.where(members.c.client == clients.c.client).exists())
    found = list(connection.execute(query).scalars())
    if not found and not after and run is None:  # version 1 may have written it otherwise
        return [client.name for client in known_clients(connection, [begin]).values()]
    return found


def each_run(connection: Connection) -> list[RunEntry]:
    """Return all runs, in the order in which they began."""
    paid = select(entries.c.run, func.count().label("rounds")).where(entries.c.kind.in_(CHARGING))
    counted = paid.group_by(entries.c.run).subquery()
    query = (
        select(runs.c.name, entries.c.at, counted.c.rounds, entries.c.detail)
        .join(entries, entries.c.entry == runs.c.run)
        .outerjoin(counted, counted.c.run == runs.c.run)
        .order_by(runs.c.run)
    )
    return [
        RunEntry(name, at[:10], rounds or 0, str(json.loads(detail).get("note", "")))
        for name, at, rounds, detail in connection.execute(query)
    ]
