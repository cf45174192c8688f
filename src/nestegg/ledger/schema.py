"""The tables of a ledger. Every row but one is written once and never changed: the head, which says where the log ends.

Spending is group rows, not client rows: a round of a million clients in a thousand groups is a thousand charges.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    select,
)

from nestegg.errors import InputError

FORMAT = "nestegg-ledger"
START = "0" * 64  # what the first entry is chained to
CHUNK = 10_000  # rows that are written or asked for at once

metadata = MetaData()
_key = BigInteger().with_variant(Integer, "sqlite")  # only an INTEGER is SQLite's own row number

head = Table(
    "head",
    metadata,
    Column("format", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("entry", _key, nullable=False),
    Column("hash", String(64), nullable=False),
)
entries = Table(
    "entries",
    metadata,
    Column("entry", _key, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("at", String, nullable=False),
    Column("run", _key, index=True),  # the entry that began the run
    Column("round", Integer),
    Column("detail", String, nullable=False),
    Column("hash", String(64), nullable=False),
)
plans = Table(
    "plans",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
clients = Table(
    "clients",
    metadata,
    Column("client", _key, primary_key=True, autoincrement=False),
    Column("name", String, nullable=False, unique=True),
)
spellings = Table(  # names of version 1 that are not in Unicode's form NFC: their form NFC
    "spellings",
    metadata,
    Column("name", String, primary_key=True),
    Column("client", _key, ForeignKey("clients.client"), nullable=False, unique=True),
)
budgets = Table(  # a client's budget is its latest; rows of version 1 have no rule, and mean "fixed"
    "budgets",
    metadata,
    Column("client", _key, ForeignKey("clients.client"), primary_key=True, autoincrement=False),
    Column("entry", _key, ForeignKey("entries.entry"), primary_key=True, autoincrement=False),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("rule", String),
    Column("renyi_order", Double),
    Index("budgets_by_entry", "entry"),
    sqlite_with_rowid=False,
)
withdrawals = Table(
    "withdrawals",
    metadata,
    Column("client", _key, ForeignKey("clients.client"), primary_key=True, autoincrement=False),
    Column("entry", _key, ForeignKey("entries.entry"), nullable=False, unique=True),
)
runs = Table(
    "runs",
    metadata,
    Column("run", _key, ForeignKey("entries.entry"), primary_key=True, autoincrement=False),
    Column("name", String, nullable=False, unique=True),
)
groups = Table(
    "groups",
    metadata,
    Column("group", _key, primary_key=True, autoincrement=False),
    Column("run", _key, ForeignKey("runs.run"), nullable=False, index=True),
    Column("name", String, nullable=False),
)
members = Table(
    "members",
    metadata,
    Column("client", _key, ForeignKey("clients.client"), primary_key=True, autoincrement=False),
    Column("group", _key, ForeignKey("groups.group"), primary_key=True, autoincrement=False),
    Column("place", Integer),  # among all members of the run, from 0; of version 1 it is not known
    Index("members_by_group", "group"),
    sqlite_with_rowid=False,
)
charges = Table(
    "charges",
    metadata,
    Column("entry", _key, ForeignKey("entries.entry"), primary_key=True, autoincrement=False),
    Column("group", _key, ForeignKey("groups.group"), primary_key=True, autoincrement=False),
    Column("sampling_rate", Double, nullable=False),
    Column("noise_multiplier", Double, nullable=False),
    sqlite_with_rowid=False,
)

Migration = Callable[[Connection], None]


def insert_rows(connection: Connection, table: Table, rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows, whose values are in the order of the columns."""
    names = [column.name for column in table.columns]
    left = iter(rows)
    while batch := list(islice(left, CHUNK)):
        connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in batch])


def _create(connection: Connection) -> None:
    metadata.create_all(connection)
    connection.execute(insert(head).values(format=FORMAT, version=1, entry=0, hash=START))


def _add_rules(connection: Connection) -> None:
    """Add what version 1 did not know: rules of accounts, withdrawals, places of members, one spelling of a name."""
    metadata.create_all(connection)
    for column in (budgets.c.rule, budgets.c.renyi_order, members.c.place):
        known = {found["name"] for found in inspect(connection).get_columns(column.table.name)}
        if column.name not in known:
            kind = column.type.compile(connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}")
    if other := other_spellings(connection):
        connection.execute(insert(spellings), [{"name": name, "client": client} for name, client in other.items()])


def other_spellings(connection: Connection) -> dict[str, int]:
    """The clients whose names are not in the form NFC, by that form. The chain has their names as they were written.

    Raises:
        InputError: two clients have one name, in two spellings: they have two accounts, and none is the right one.
    """
    written: dict[str, int] = dict(connection.execute(select(clients.c.name, clients.c.client)).all())
    found: dict[str, int] = {}
    for name, client in written.items():
        if unicodedata.is_normalized("NFC", name):
            continue
        form = unicodedata.normalize("NFC", name)
        if (other := found.setdefault(form, written.get(form, client))) != client:
            raise InputError(
                f"clients {min(client, other)} and {max(client, other)} are both {form!r}, in two spellings that "
                "Unicode holds for the same: with two accounts of one client this ledger cannot be brought up to date."
            )
    return found


# What makes version n of the tables out of version n − 1. A new ledger has all columns from the first step on.
MIGRATIONS: tuple[Migration, ...] = (_create, _add_rules)


def version_of(connection: Connection, place: str) -> int:
    """The version of the tables in a database; 0 where there are none.

    Raises:
        InputError: the database holds something else, or a ledger of a newer nestegg.
    """
    names = inspect(connection).get_table_names()
    if not names:
        return 0
    found: list[Any] = []
    if head.name in names and {column["name"] for column in inspect(connection).get_columns(head.name)} >= {"format"}:
        found = list(connection.exec_driver_sql("SELECT format, version FROM head").all())
    if len(found) != 1 or found[0][0] != FORMAT or not isinstance(found[0][1], int):
        raise InputError(f"{place} is not a ledger: it holds the table {names[0]!r} and no head of a nestegg ledger.")
    version: int = found[0][1]
    if version > len(MIGRATIONS):
        raise InputError(
            f"{place} is a ledger of version {version}; this nestegg knows versions up to {len(MIGRATIONS)}. "
            "A newer nestegg must open it."
        )
    return version
