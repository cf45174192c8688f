"""A ledger's database: SQLite in a file, or PostgreSQL by URL. What is committed is on disk; writers take turns."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, create_engine, event, insert, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from nestegg.errors import InputError
from nestegg.extras import needs
from nestegg.ledger import schema

_PATIENCE = 30  # seconds to wait for another writer
_LOCK = 0x6E657374  # any number, as long as all of us take the same


class Database:
    """Transactions on a ledger's tables; opening creates them, migrates them, or says why it cannot.

    Args:
        where: a file, or its URL `sqlite:///path`, or `postgresql://user@host/name`, whose password comes from
            PGPASSWORD or a pgpass file.
        read_only: nothing is created, migrated or changed; writers are not in the way and not held up.
    """

    def __init__(self, where: str | Path, read_only: bool = False) -> None:
        self.url = file_url(where) if isinstance(where, Path) else checked_url(where)
        self.read_only = read_only
        self.place = place(self.url)
        if self.url.get_backend_name() == "sqlite":
            file = Path(self.place)
            if file.is_dir():
                raise InputError(f"{file} is a folder; a ledger is a file.")
            if not read_only and not file.parent.is_dir():
                raise InputError(f"the ledger {file} cannot be made: there is no folder {file.parent}.")
            if read_only and not file.exists():
                raise InputError(f"{file} does not exist; a ledger is given by its file or URL (--ledger).")
            if not read_only and file.exists() and file.stat().st_size:
                self._version(_engine(self.url, read_only=True))  # what is no ledger stays as it is, to the byte
        self._engine = _engine(self.url, read_only)
        try:
            if self._version(self._engine) < len(schema.MIGRATIONS):
                self._migrate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees the ledger as it is at its start."""
        with self._transaction(write=False) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction alone: it starts after every other writer's end, and at its own end it is on disk."""
        if self.read_only:
            raise InputError(f"{self.place} was opened to read only.")
        with self._transaction(write=True) as connection:
            connection.execute(select(schema.head).with_for_update()).all()  # in SQLite, BEGIN IMMEDIATE did it
            yield connection

    @contextmanager
    def _transaction(self, write: bool, engine: Engine | None = None) -> Iterator[Connection]:
        chosen = engine or self._engine
        try:
            with chosen.connect().execution_options(nestegg_write=write) as connection, connection.begin():
                yield connection
        except (SQLAlchemyError, UnicodeError) as error:
            raise InputError(f"the ledger {self.place} cannot be used: {_reason(error)}") from None

    def _version(self, engine: Engine) -> int:
        try:
            with self._transaction(write=False, engine=engine) as connection:
                return schema.version_of(connection, self.place)
        finally:
            engine.dispose()

    def _migrate(self) -> None:
        """Bring older tables up to date in one transaction, after a backup; an empty database gets all of them."""
        if self.read_only:
            raise InputError(
                f"{self.place} is an older ledger, or empty: it must first be opened to write, as "
                "nestegg ledger migrate does."
            )
        with self._transaction(write=True) as connection:
            if self.url.get_backend_name() == "postgresql":  # there is no head yet to wait for
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            version = schema.version_of(connection, self.place)  # another process may have been faster
            backup = _backup_file(self.url, version)
            if 0 < version < len(schema.MIGRATIONS):
                copy_to_file(connection, backup)
            try:
                for migration in schema.MIGRATIONS[version:]:
                    migration(connection)
                connection.execute(update(schema.head).values(version=len(schema.MIGRATIONS)))
            except BaseException:
                backup.unlink(missing_ok=True)  # nothing is changed, so there is nothing to go back to
                raise


def file_of(where: str | Path) -> Path | None:
    """Return the file of a ledger; None if a server keeps it."""
    if isinstance(where, Path):
        return where
    url = checked_url(where)
    return Path(place(url)) if url.get_backend_name() == "sqlite" else None


def file_url(path: Path) -> URL:
    """The URL of a file, whatever its name."""
    return URL.create("sqlite", database=str(path.absolute()))


def checked_url(text: str) -> URL:
    """A URL of a ledger, as SQLAlchemy reads it.

    Raises:
        InputError: it is none, or it holds a password, which would end up in run folders.
    """
    wanted = "must look like sqlite:///ledger.db or postgresql://user@host/name"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        shown = re.sub(r"//.*@", "//…@", text)  # there may be a password in it
        raise InputError(f"ledger.url = {shown!r} {wanted}.") from None
    if url.password is not None or "password" in url.query:
        raise InputError(
            "ledger.url must not hold a password, which would be copied into every run: PGPASSWORD or a pgpass file "
            "can give it."
        )
    if url.drivername == "sqlite" and text.startswith("sqlite:///") and url.database not in (None, "", ":memory:"):
        if url.query or "\0" in text:
            raise InputError(f"ledger.url = {text!r} must be the name of a file, without anything after it.")
        return file_url(Path(text.removeprefix("sqlite:///")))
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise InputError(f"ledger.url = {text!r} {wanted}.")


def place(url: URL) -> str:
    """Where a ledger is, for people."""
    is_file = url.get_backend_name() == "sqlite"
    return str(url.database) if is_file else url.set(drivername="postgresql").render_as_string()


def copy_to_file(source: Connection, path: Path) -> None:
    """Copy every table, as this transaction sees it, into a new SQLite file: whole, or not there."""
    if path.exists():
        raise InputError(f"{path} exists; a backup never replaces a file.")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    found = MetaData()
    found.reflect(source)
    for column in (column for table in found.tables.values() for column in table.columns):
        column.type = column.type.as_generic()
    try:
        engine = _engine(file_url(beside), read_only=False)
        with engine.connect().execution_options(nestegg_write=True) as target, target.begin():
            found.create_all(target)
            for table in found.sorted_tables:
                rows = source.execute(select(table)).mappings()
                while batch := rows.fetchmany(schema.CHUNK):
                    target.execute(insert(table), [dict(row) for row in batch])
        engine.dispose()
        os.rename(beside, path)
    except (SQLAlchemyError, OSError) as error:
        raise InputError(f"{path} cannot be written: {_reason(error)}") from None
    finally:
        beside.unlink(missing_ok=True)


def _engine(url: URL, read_only: bool) -> Engine:
    if url.get_backend_name() == "postgresql":
        return _postgresql(url, read_only)
    path = Path(str(url.database)).absolute()
    mode = "ro" if read_only else "rwc"
    if read_only and not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        mode += "&immutable=1"  # we cannot make the files by which SQLite would notice that others write

    def connect() -> sqlite3.Connection:
        uri = f"{path.as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=1)

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _: Any) -> None:
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")  # readers and one writer do not wait for each other
            connection.execute("PRAGMA synchronous = FULL")  # a commit returns when it is on disk
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("nestegg_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: URL, read_only: bool) -> Engine:
    needs("a ledger on PostgreSQL", "postgresql")
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": _PATIENCE})
    except ArgumentError as error:
        raise InputError(f"the ledger {place(url)} cannot be used: {_reason(error)}") from None

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: Any) -> None:
        with connection.cursor() as cursor:
            if cursor.execute("SHOW fsync").fetchone()[0] != "on":
                raise InputError(
                    f"{place(url)} runs with fsync = off: what it commits may be lost. A ledger needs it on."
                )
            cursor.execute("SET synchronous_commit = on")
            cursor.execute(f"SET lock_timeout = '{_PATIENCE}s'")
            if read_only:
                cursor.execute("SET default_transaction_read_only = on")
        connection.commit()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer must see what was committed while it waited for its turn, whatever the database's default is.
        write = connection.get_execution_options().get("nestegg_write")
        level = "READ COMMITTED" if write else "REPEATABLE READ"
        connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {level}")

    return engine


def _backup_file(url: URL, version: int) -> Path:
    """A new file beside the ledger's, or here; with a number where an older ledger was restored and backed up again."""
    beside = str(url.database) if url.get_backend_name() == "sqlite" else f"{url.database}.ledger"
    name = f"{beside}.version-{version}.backup"
    return next(path for path in chain([Path(name)], (Path(f"{name}-{i}") for i in count(2))) if not path.exists())


def _reason(error: Exception) -> str:
    """One line of what a driver says, with what to do where it is known."""
    text = str(getattr(error, "orig", None) or getattr(error, "strerror", None) or error).strip().splitlines()[0]
    hints = {
        "malformed": "; restore a backup",
        "not a database": "; restore a backup, if it was one",
        "locked": "; another process has been writing for too long",
        "disk I/O": "; the disk may be full or broken",
    }
    hint = next((hint for words, hint in hints.items() if words in text), "")
    return f"{text.rstrip('.')}{hint}."
