"""Databases: what is refused, readers and writers at once, backups."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text

from nestegg import Budget, InputError
from nestegg.ledger import Ledger
from nestegg.ledger.database import checked_url
from tests.ledger.ledgers import NAMES, begun, spend, tables_in, two_groups


def test_other_databases_are_refused(url: str) -> None:
    engine = create_engine(checked_url(url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE recipes (id INTEGER)"))
    with pytest.raises(InputError, match="is not a ledger: it holds the table 'recipes'"):
        Ledger(url)
    with engine.begin() as connection:
        assert tables_in(connection) == {"recipes"}
        connection.execute(text("DROP TABLE recipes"))
    Ledger(url).close()
    with engine.begin() as connection:
        connection.execute(text("UPDATE head SET version = 7"))
    engine.dispose()
    for read_only in (False, True):
        with pytest.raises(InputError, match="is a ledger of version 7; this nestegg knows versions up to 2"):
            Ledger(url, read_only)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("ledger.db", "must look like sqlite:///ledger.db"),
        ("sqlite://", "must look like"),
        ("mysql://localhost/x", "must look like"),
        ("sqlite+pysqlite:///x.db", "must look like"),
        ("sqlite:///x.db?mode=ro", "without anything after it"),
        ("postgresql://localhost/x?password=secret", "must not hold a password"),
        ("postgresql://localhost/x?host=a&host=b&port=1", "cannot be used"),
        ("nonsense://x", "must"),
        ("postgresql://ada:secret@localhost/x", r"must not hold a password.*PGPASSWORD"),
        ("postgresql://nobody@127.0.0.1:1/x", "cannot be used: connection"),
        ("sqlite:////nowhere/at/all/ledger.db", "there is no folder /nowhere/at/all"),
    ],
)
def test_urls_that_are_none(bad: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Ledger(bad)
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_sync_is_refused(postgres: Any) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    try:
        wait_for(url, "off")
        with pytest.raises(InputError, match="fsync = off"):
            Ledger(url)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")
        wait_for(url, "on")


def wait_for(url: str, fsync: str) -> None:
    """The server reloads its settings when it gets to it."""
    seen = None
    while seen != (fsync,):
        with psycopg.connect(url) as connection:
            seen = connection.execute("SHOW fsync").fetchone()


def test_reading_does_not_write_and_writing_does_not_wait(url: str) -> None:
    with begun(url) as (_, books), Ledger(url, read_only=True) as reader:
        for change in (
            lambda: reader.set_budgets({"ada": Budget(99.0)}),
            lambda: reader.books("monday").reserve(1),
            lambda: reader.begin("tuesday", two_groups(), NAMES),
        ):
            with pytest.raises(InputError, match="was opened to read only"):
                change()
        with reader._database.reading() as connection:
            before = connection.execute(text("SELECT entry FROM head")).scalar_one()
            spend(books, 1)
            assert connection.execute(text("SELECT entry FROM head")).scalar() == before  # one moment
        assert reader.verify()[0].entry == before + 2
        transaction = reader._database._transaction(write=False)
        with pytest.raises(InputError, match="cannot be used"), transaction as connection:
            connection.execute(text("DELETE FROM head"))


def test_a_ledger_on_a_medium_nobody_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with begun(url):
        pass
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with Ledger(url, read_only=True) as ledger:
        ledger.verify()
    assert {path.name for path in tmp_path.iterdir()} == {"ledger.db"}
    with pytest.raises(InputError, match=r"nothing\.db does not exist"):
        Ledger(f"sqlite:///{tmp_path / 'nothing.db'}", read_only=True)


def test_a_backup_while_rounds_go_on_is_a_ledger_of_one_moment(url: str, tmp_path: Path) -> None:
    with begun(url, two_groups(rounds=40), {n: Budget(50.0) for n in NAMES}) as (ledger, books):
        worker = threading.Thread(target=spend, args=(books, 40))
        worker.start()
        heads = []
        for i in range(3):
            ledger.backup(tmp_path / f"{i}.db")
            with Ledger(f"sqlite:///{tmp_path / f'{i}.db'}", read_only=True) as copy:
                heads.append(copy.verify()[0])
        worker.join()
        assert heads == sorted(heads)
        for head in heads:
            ledger.verify(head.hash)
        with pytest.raises(InputError, match="a backup never replaces a file"):
            ledger.backup(tmp_path / "0.db")
        assert not list(tmp_path.glob(".*"))
    # A backup is a ledger to go on with.
    with Ledger(f"sqlite:///{tmp_path / '0.db'}") as copy:
        again = copy.books("monday")
        assert again.reserve(again.state.done + 1)
