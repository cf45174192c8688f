"""The log: entries in one order, each chained to the one before by its hash, so that no change goes unnoticed.

budgets   clients, their lifetime budgets, and the rules of their accounts; why, and who says so
withdraw  a client withdraws: it is in no new run, and pays for no round that is reserved later
run       a run: its plan, its groups, and who is in which
replan    another plan for the rounds of a run that are left
reserve   a round's charges, before any client is asked to do anything
recover   the same for a round that a checkpoint holds and the log had lost: charged also to who has withdrawn since
retry     the same reservation, claimed again after a crash
release   the round's result is out; the digest of its checkpoint
rewind    results that were released and then lost: paid, and to be paid again

Entries name plans by their digests: those are kept once, and read as if a stranger had written them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, insert, select, update

from nestegg.errors import InputError, VerificationError
from nestegg.ledger.schema import (
    START,
    budgets,
    charges,
    clients,
    entries,
    groups,
    head,
    members,
    plans,
    runs,
    withdrawals,
)
from nestegg.planning import Plan, parse_plan

CHARGING = ("reserve", "recover")  # kinds of entries that charge

_text = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


class Position(NamedTuple):
    """A place in the log: the number and the hash of an entry. Noted elsewhere, it proves all that came before."""

    entry: int
    hash: str


BEGINNING = Position(0, START)


@dataclass(frozen=True)
class Entry:
    """One entry, with the rows that belong to it.

    Attributes:
        run: number of the entry that began the run.
        rows: of budgets (client, ε, δ, rule, order), of a run (group, client, place), of a reservation (group, q, σ),
            of a withdrawal the client and then the groups it leaves; clients by name, groups by number.
    """

    number: int
    kind: str
    at: str
    run: int | None
    round: int | None
    detail: dict[str, Any]
    hash: str
    rows: tuple[tuple[Any, ...], ...] = ()


def append(
    connection: Connection,
    kind: str,
    *,
    run: int | None = None,
    round_: int | None = None,
    detail: dict[str, Any] | None = None,
    rows: Iterable[tuple[Any, ...]] = (),
) -> Position:
    """Add an entry at the end of the log; the caller writes its rows, in this transaction and in this order.

    A run that begins is its own entry's number.
    """
    last = end(connection)
    number, now = last.entry + 1, datetime.now(UTC).isoformat(timespec="milliseconds")
    fields = (number, kind, now, number if kind == "run" else run, round_, _text(detail or {}))
    link = _link(last.hash, fields, rows)
    connection.execute(insert(entries).values((*fields, link)))
    connection.execute(update(head).values(entry=number, hash=link))
    return Position(number, link)


def end(connection: Connection) -> Position:
    """Where the log ends."""
    return Position(*connection.execute(select(head.c.entry, head.c.hash)).one())


def walk(connection: Connection, after: Position, place: str) -> Iterator[Entry]:
    """The entries after a position, each checked against its hash.

    Raises:
        VerificationError: an entry, or a row of it, was changed, removed, added or moved.
    """
    spent = _Rows(
        connection.execute(select(charges).where(charges.c.entry > after.entry).order_by(*charges.primary_key))
    )
    given = _Rows(
        connection.execute(
            select(budgets.c.entry, clients.c.name, *budgets.c["epsilon", "delta", "rule", "renyi_order"])
            .join(clients)
            .where(budgets.c.entry > after.entry)
            .order_by(budgets.c.entry, budgets.c.client)
        )
    )
    last = after
    for row in connection.execute(select(entries).where(entries.c.entry > after.entry).order_by(entries.c.entry)):
        number, kind, at, run, round_, detail, link = row
        what = f"{place}: entry {number} ({kind})"
        if number != last.entry + 1:
            raise VerificationError(f"{place}: entry {last.entry + 1} is missing.")
        rows = {"reserve": spent, "recover": spent, "budgets": given}.get(kind, _NO_ROWS).of(number, what)
        if kind == "run":
            rows = _membership(connection, number)
        elif kind == "withdraw":
            rows = _withdrawal(connection, number)
        elif kind == "budgets":
            rows = tuple(budget_row(*row) for row in rows)
        if link != _link(last.hash, (number, kind, at, run, round_, detail), rows):
            raise VerificationError(f"{what} is not what was written: it, its rows or the entry before were changed.")
        last = Position(number, link)
        yield Entry(number, kind, at, run, round_, json.loads(detail), link, rows)
    if last != end(connection):
        raise VerificationError(f"{place}: the log ends at entry {last.entry}, not where its head says.")
    if spent.is_more or given.is_more:
        raise VerificationError(f"{place}: rows come after the end of the log, which is entry {last.entry}.")


def store_plan(connection: Connection, plan: Plan) -> None:
    """Keep a plan under its digest, once."""
    if not connection.execute(select(plans.c.digest).where(plans.c.digest == plan.digest)).first():
        connection.execute(insert(plans).values(digest=plan.digest, content=zlib.compress(plan.to_json().encode())))


def load_stored_plan(connection: Connection, digest: str, place: str) -> Plan:
    """The plan of a digest, and no other."""
    content = connection.execute(select(plans.c.content).where(plans.c.digest == digest)).scalar()
    source = f"{place}: plan {digest[:16]}"
    try:
        plan = parse_plan(zlib.decompress(content or b"").decode(), source)
    except (zlib.error, UnicodeDecodeError, InputError):
        raise VerificationError(f"{source} is missing or damaged.") from None
    if plan.digest != digest:
        raise VerificationError(f"{source} was replaced by another.")
    return plan


class _Rows:
    """Rows of many entries in the order of the entries, handed out entry by entry."""

    def __init__(self, rows: Iterable[Row[Any]] = ()) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)

    @property
    def is_more(self) -> bool:
        """Whether rows are left."""
        return self._next is not None

    def of(self, entry: int, what: str) -> tuple[tuple[Any, ...], ...]:
        """The rows of an entry, without its number; rows of an earlier one belong to nobody."""
        found: list[tuple[Any, ...]] = []
        while self._next is not None and self._next[0] <= entry:
            if self._next[0] < entry:
                raise VerificationError(f"{what} comes after rows that belong to no entry.")
            found.append(tuple(self._next[1:]))
            self._next = next(self._rows, None)
        return tuple(found)


_NO_ROWS = _Rows()


def _membership(connection: Connection, run: int) -> tuple[tuple[Any, ...], ...]:
    """A run's rows: its name, its groups by number and name, and its members."""
    name = connection.execute(select(runs.c.name).where(runs.c.run == run)).all()
    named = connection.execute(
        select(groups.c.group, groups.c.name).where(groups.c.run == run).order_by(groups.c.group)
    )
    joined = connection.execute(
        select(members.c.group, clients.c.name, members.c.place)
        .join(clients, members.c.client == clients.c.client)
        .join(groups, members.c.group == groups.c.group)
        .where(groups.c.run == run)
        .order_by(members.c.group, members.c.client)
    )
    return membership_rows(name[0][0] if name else "", map(tuple, named), map(tuple, joined))


def membership_rows(
    run: str, named: Iterable[tuple[Any, ...]], joined: Iterable[tuple[Any, ...]]
) -> tuple[tuple[Any, ...], ...]:
    """The rows of a run's entry, in the order in which they are hashed; members of version 1 have no place."""
    return ((run,), *named, *(row[:2] if row[2] is None else row for row in joined))


def budget_row(client: str, epsilon: float, delta: float, rule: str | None, order: float | None) -> tuple[Any, ...]:
    """A row of a budgets entry as it is hashed; those of version 1 have no rule."""
    return (client, epsilon, delta) if rule is None else (client, epsilon, delta, rule, order)


def _withdrawal(connection: Connection, entry: int) -> tuple[tuple[Any, ...], ...]:
    """A withdrawal's rows: the client, and the groups it is in, which are all it will ever be in."""
    chosen = withdrawals.c.entry == entry
    name = connection.execute(select(clients.c.name).join(withdrawals).where(chosen)).all()
    taken = select(members.c.group).join(withdrawals, members.c.client == withdrawals.c.client).where(chosen)
    return (*map(tuple, name), *map(tuple, connection.execute(taken.order_by(members.c.group))))


def _link(previous: str, fields: tuple[Any, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    """SHA-256 over the hash before, the entry and its rows."""
    digest = hashlib.sha256(f"{previous}\n{_text(fields)}\n".encode())
    for row in rows:
        digest.update(f"{_text(row)}\n".encode())
    return digest.hexdigest()
