"""Who else may touch a ledger: tampering, other databases, older versions, readers, backups."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import unicodedata
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, MetaData, create_engine, text

from nestegg import Budget, BudgetError, Group, InputError, VerificationError, plan
from nestegg.ledger import Ledger, Rule, schema
from nestegg.ledger.database import checked_url
from nestegg.ledger.log import _link, append, store_plan

from .conftest import Run
from .test_ledger import NAMES, begun, spend, two_groups

TAMPERINGS = {
    "a changed charge": "UPDATE charges SET noise_multiplier = 9.0 WHERE entry = 3",
    "a removed charge": 'DELETE FROM charges WHERE entry = 3 AND "group" = 1',
    "a charge that was added": "INSERT INTO charges VALUES (4, 1, 0.5, 2.0)",
    "a removed round": "DELETE FROM charges WHERE entry = 5; DELETE FROM entries WHERE entry IN (5, 6)",
    "a removed end": "DELETE FROM entries WHERE entry = 8",
    "a removed end, without its charges": "DELETE FROM charges WHERE entry = 7; DELETE FROM entries WHERE entry > 6",
    "reordered rounds": (
        "UPDATE charges SET entry = 99 WHERE entry = 3; UPDATE charges SET entry = 3 WHERE entry = 5;"
        "UPDATE charges SET entry = 5 WHERE entry = 99"
    ),
    "a changed round": "UPDATE entries SET round = 2 WHERE entry = 3",
    "a changed time": "UPDATE entries SET at = '1999' WHERE entry = 3",
    "a release that never was": "UPDATE entries SET kind = 'release' WHERE entry = 3",
    "a larger budget": "UPDATE budgets SET epsilon = 99.0 WHERE client = 1",
    "a member moved": 'UPDATE members SET "group" = 2 WHERE client = 1',
    "a member gone": "DELETE FROM members WHERE client = 1",
    "a member renamed": "UPDATE clients SET name = 'zoe' WHERE client = 1",
    "a run renamed": "UPDATE runs SET name = 'sunday'",
    "a replaced plan": "UPDATE plans SET content = (SELECT content FROM plans WHERE digest <> 'D') WHERE digest = 'D'",
    "a removed plan": "DELETE FROM plans WHERE digest = 'D'",
    "a moved head": "UPDATE head SET entry = 6",
    "a budget after the end": "INSERT INTO budgets VALUES (1, 1000000, 99.0, 0.1, 'fixed', NULL)",
    "a charge after the end": "INSERT INTO charges VALUES (1000000, 1, 0.5, 2.0)",
    "a run from nowhere": "INSERT INTO runs VALUES (3, 'sunday')",
    "a group from nowhere": "INSERT INTO groups VALUES (9, 2, 'nobody')",
    "a member from nowhere": "INSERT INTO members VALUES (1, 9, 7)",
    "a client from nowhere": "INSERT INTO clients VALUES (9, 'zoe')",
    "a charge before the beginning": "INSERT INTO charges VALUES (0, 1, 0.5, 2.0)",
    "a budget before the beginning": "INSERT INTO budgets VALUES (1, 0, 99.0, 0.1, 'fixed', NULL)",
    "a budget of nobody": "INSERT INTO budgets VALUES (77, 1, 5.0, 0.1, 'fixed', NULL)",
    "another rule": "UPDATE budgets SET rule = 'gaussian' WHERE client = 1",
    "a rule as of version 1": "UPDATE budgets SET rule = NULL WHERE client = 1",
    "another order": "UPDATE budgets SET renyi_order = 9.0 WHERE client = 1",
    "a member in another place": "UPDATE members SET place = 3 WHERE client = 1",
    "a member without a place": "UPDATE members SET place = NULL WHERE client = 1",
    "a spelling from nowhere": "INSERT INTO spellings VALUES ('eve', 1)",
    "a withdrawal from nowhere": "INSERT INTO withdrawals VALUES (1, 3)",
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_noticed(what: str, url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 3)
        with ledger._database.writing() as connection:
            store_plan(connection, two_groups(3.0))
        ledger.verify()
    tamper(url, TAMPERINGS[what].replace("'D'", f"'{two_groups().digest}'"))
    with Ledger(url, read_only=True) as ledger, pytest.raises(VerificationError, match=r"ledger\.db|postgresql://"):
        ledger.verify()


def test_a_reservation_that_its_plan_does_not_know_is_noticed(url: str) -> None:
    """By somebody who can write entries, and chain them, but not by the plan."""
    with begun(url) as (ledger, books):
        spend(books, 1)
        rows = [(group, 0.5, 90.0) for group in books.state.groups]
        with ledger._database.writing() as connection:
            entry = append(connection, "reserve", run=books.state.number, round_=2, rows=rows).entry
            schema.insert_rows(connection, schema.charges, ((entry, *row) for row in rows))
        with pytest.raises(VerificationError, match=f"entry {entry} does not charge what the plan says"):
            ledger.verify()


def tamper(url: str, statements: str) -> None:
    engine = create_engine(checked_url(url))
    with engine.begin() as connection:
        for statement in statements.split(";"):
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET session_replication_role = replica"))  # no foreign keys
            connection.execute(text(statement))
    engine.dispose()


def test_a_history_rewritten_as_a_whole_is_noticed_by_whoever_noted_its_head(tmp_path: Path) -> None:
    url, forged = (f"sqlite:///{tmp_path / name}" for name in ("ledger.db", "forged.db"))
    with begun(url) as (ledger, books):
        spend(books, 3)
        noted = ledger.verify()[0].hash
        spend(books, 1)
        ledger.verify(noted)
    with begun(forged) as (ledger, books):
        spend(books, 2)
        ledger.verify()
        with pytest.raises(VerificationError, match=f"no entry has the noted hash {noted}"):
            ledger.verify(noted)


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


def tables_in(connection: Connection) -> set[str]:
    kinds = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    }
    return set(connection.execute(text(kinds[connection.dialect.name])).scalars())


def test_an_older_ledger_is_migrated_after_a_backup(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with begun(url) as (ledger, books):
        spend(books, 2)
        head = ledger.verify()[0]

    def fails(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE halfway (id INTEGER)"))
        raise ZeroDivisionError

    def notes(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE notes (id INTEGER)"))

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, fails))
    with pytest.raises(InputError, match="is an older ledger, or empty: it must first be opened to write"):
        Ledger(url, read_only=True)
    with pytest.raises(ZeroDivisionError):
        Ledger(url)
    assert not list(tmp_path.glob("*.backup*"))
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:2], notes))
    with Ledger(url) as ledger:
        assert ledger.verify()[0] == head
        with ledger._database.reading() as connection:
            assert "notes" in tables_in(connection)
            assert "halfway" not in tables_in(connection)
            assert schema.version_of(connection, "it") == 3
    Ledger(url).close()  # once only
    (backup,) = tmp_path.glob("*.version-2.backup")
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:2])
    with Ledger(f"sqlite:///{backup}", read_only=True) as ledger:
        assert ledger.verify()[0] == head


V1_HEAD = "881810cbebce53695c957406b4935095d2fcaa3b56add07dac0bbfe509dfb1a4"


def version_1(url: str, folder: Path) -> None:
    """A ledger that nestegg wrote before accounts had rules: two rounds released, one reserved, a budget raised."""
    path = folder / "version-1.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((Path(__file__).parent / "data" / "ledger-v1.sql").read_text())
    source, target, found = create_engine(f"sqlite:///{path}"), create_engine(checked_url(url)), MetaData()
    found.reflect(source)
    for table in found.tables.values():
        for column in table.columns:
            column.type, column.autoincrement = column.type.as_generic(), False
    found.create_all(target)
    with source.connect() as old, target.begin() as new:
        for table in found.sorted_tables:
            new.execute(table.insert(), [dict(row) for row in old.execute(table.select()).mappings()])
    source.dispose()
    target.dispose()


def test_a_ledger_of_version_1_keeps_its_chain_and_its_promise(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    version_1(url, tmp_path)
    assert run("ledger", "show", "--ledger", url).code == 2
    assert run("ledger", "migrate", "--ledger", url).out == "The ledger is up to date.\n"
    assert len(list(tmp_path.glob("*.version-1.backup"))) == 1
    with Ledger(url) as ledger:
        assert ledger.verify()[0].hash == V1_HEAD
        assert {account.rule for account in ledger.accounts()} == {Rule("fixed")}
        assert ledger.account("ada").budget == Budget(7.0)
        assert [(change.epsilon, change.reason) for change in ledger.changes("ada")] == [(6.0, ""), (7.0, "")]
        books = ledger.books("monday")
        books.release(3, books.reserve(3), "result 3")
        assert ledger.account("ada").epsilon == pytest.approx(3.0, rel=1e-6)
        with pytest.raises(InputError, match="cannot replace the rule 'fixed' of an account that is in use"):
            ledger.set_budgets({"ada": Budget(8.0)}, rule="renyi", reason="safer")
        ledger.set_budgets({"ada": Budget(8.0), "Zoë": Budget(9.5)}, reason="more")  # her name was written otherwise
        ledger.set_budgets({"eve": Budget(8.0)}, new=True)
        assert [ledger.account(name).rule.name for name in ("ada", "Zoë", "eve")] == ["fixed", "fixed", "renyi"]
        ledger.verify(V1_HEAD)


def renamed(path: Path, client: int, name: str) -> None:
    """Give a client of a version 1 ledger another name, in a chain that version 1 would have written."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE clients SET name = ? WHERE client = ?", [name, client])
        link = schema.START
        for *fields, _ in database.execute("SELECT * FROM entries ORDER BY entry").fetchall():
            entry, kind = fields[:2]
            queries = {
                "budgets": [
                    "SELECT name, epsilon, delta FROM budgets NATURAL JOIN clients WHERE entry = ? ORDER BY client"
                ],
                "run": [
                    "SELECT name FROM runs WHERE run = ?",
                    'SELECT "group", name FROM groups WHERE run = ? ORDER BY "group"',
                    'SELECT "group", clients.name FROM members JOIN groups USING ("group") JOIN clients USING (client) '
                    'WHERE run = ? ORDER BY "group", client',
                ],
                "reserve": [
                    'SELECT "group", sampling_rate, noise_multiplier FROM charges WHERE entry = ? ORDER BY "group"'
                ],
            }
            rows = [row for query in queries.get(kind, []) for row in database.execute(query, [entry])]
            link = _link(link, tuple(fields), rows)
            database.execute("UPDATE entries SET hash = ? WHERE entry = ?", [link, entry])
        database.execute("UPDATE head SET hash = ?", [link])
        database.commit()


KELVIN = "\u212aada"  # is neither NFC nor NFD: both are an ordinary K


def test_a_name_of_version_1_in_any_spelling_has_one_account(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    version_1(f"sqlite:///{path}", tmp_path)
    renamed(path, 1, KELVIN)
    with Ledger(path) as ledger:
        head = ledger.verify()[0]
        for name in (KELVIN, "Kada"):
            assert (ledger.account(name).budget, ledger.account(name).parts[0].rounds) == (Budget(7.0), 3)
        ledger.set_budgets({"Kada": Budget(7.5)}, reason="no second account")
        ledger.begin("tuesday", plan([Group("all", 2, Budget(1.0))], 2), (KELVIN, "Zoë"))
        with pytest.raises(InputError, match="1 different clients"):
            ledger.begin("wednesday", plan([Group("all", 2, Budget(1.0))], 2), (KELVIN, "Kada"))
        assert {name: len(account.parts) for name, account in ledger.clients()}[KELVIN] == 2
        ledger.verify(head.hash)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM clients").fetchone() == (3,)
        database.execute("UPDATE spellings SET client = 2 WHERE client = 1")
        database.commit()
    with Ledger(path) as ledger, pytest.raises(VerificationError, match="'spellings' is not what clients' names say"):
        ledger.verify()


def test_two_clients_of_version_1_with_one_name_are_not_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    version_1(f"sqlite:///{path}", tmp_path)
    renamed(path, 2, unicodedata.normalize("NFC", "Zoë"))
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"clients 2 and 3 are both 'Zoë', in two spellings.*cannot be brought"):
        Ledger(path)
    assert not list(tmp_path.glob("*.backup*"))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version FROM head").fetchone() == (1,)
    assert len(before) == path.stat().st_size


def test_a_restored_ledger_of_version_1_is_migrated_beside_its_first_backup(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for _ in range(2):
        version_1(f"sqlite:///{path}", tmp_path)
        Ledger(path).close()
        for file in (*tmp_path.glob("ledger.db*"), tmp_path / "version-1.db"):
            if "backup" not in file.name:
                file.unlink()
    assert {file.name for file in tmp_path.iterdir()} == {
        "ledger.db.version-1.backup",
        "ledger.db.version-1.backup-2",
    }


def test_a_run_of_version_1_does_not_go_on_without_a_member_whose_place_it_never_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    version_1(url, tmp_path)
    with Ledger(url) as ledger:
        ledger.books("monday").check_rest()
        ledger.withdraw("bob", "enough")
        before, books = ledger.verify(V1_HEAD)[0], ledger.books("monday")
        for refused in (books.withdrawn, books.check_rest, lambda: books.reserve(3)):
            with pytest.raises(InputError, match="cannot go on without 'bob', who has withdrawn"):
                refused()
        assert ledger.verify()[0] == before
        books.reconcile([*books.state.results.values(), "result 3"])
        books.check_rest()  # the run is complete: nobody is sampled any more


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
        ("sqlite:////nowhere/at/all/ledger.db", "cannot be used: unable to open database file"),
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


def test_runs_that_do_not_fit(url: str) -> None:
    with begun(url) as (ledger, _):
        for names, message in (
            (NAMES[:3], "3 different clients; the plan is for 4"),
            ([*NAMES[:3], "ada"], "3 different"),
        ):
            with pytest.raises(InputError, match=message):
                ledger.begin("tuesday", two_groups(), names)
        with pytest.raises(InputError, match="'monday' is in the ledger already"):
            ledger.begin("monday", two_groups(), NAMES)
        with pytest.raises(InputError, match="'fedavg' adds no noise"):
            ledger.begin("tuesday", two_groups(method="fedavg"), NAMES)
        with pytest.raises(InputError, match="'eve' has no lifetime budget"):
            ledger.begin("tuesday", two_groups(), [*NAMES[:3], "eve"])
        with pytest.raises(InputError, match="knows no run 'tuesday'"):
            ledger.books("tuesday")
        with pytest.raises(InputError, match="must be a word"):
            ledger.begin(" ", two_groups(), NAMES)
        assert ledger.verify()[0].entry == 2


def test_the_chain_can_be_checked_by_anybody(tmp_path: Path) -> None:
    """The hash of every entry, recomputed with nothing but SQL, JSON and SHA-256."""
    from hashlib import sha256

    path = tmp_path / "ledger.db"
    with begun(f"sqlite:///{path}") as (_, books):
        spend(books, 2)
    dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
    previous = "0" * 64
    with closing(sqlite3.connect(path)) as database:
        for *fields, stated in database.execute("SELECT * FROM entries ORDER BY entry").fetchall():
            entry = fields[0]
            rows = database.execute(
                'SELECT "group", sampling_rate, noise_multiplier FROM charges WHERE entry = ? ORDER BY "group"', [entry]
            ).fetchall()
            if fields[1] == "budgets":
                rows = database.execute(
                    "SELECT name, epsilon, delta, rule, renyi_order FROM budgets NATURAL JOIN clients "
                    "WHERE entry = ? ORDER BY client",
                    [entry],
                ).fetchall()
            elif fields[1] == "run":
                rows = database.execute("SELECT name FROM runs").fetchall()
                rows += database.execute('SELECT "group", name FROM groups ORDER BY "group"').fetchall()
                rows += database.execute(
                    'SELECT "group", name, place FROM members NATURAL JOIN clients ORDER BY "group", client'
                ).fetchall()
            lines = [previous, dumps(fields), *map(dumps, rows)]
            previous = sha256("".join(line + "\n" for line in lines).encode()).hexdigest()
            assert previous == stated


def test_budgets_rise_and_fall_but_not_below_what_is_spent(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 6)
        before = ledger.verify()[0]
        given = {"eve": Budget(1.0), "bob": Budget(7.0), "ada": Budget(3.0)}
        with pytest.raises(
            InputError, match=r"client 'ada': epsilon = 3 at delta = 1e-05 is below what it has spent, 5"
        ):
            ledger.set_budgets(given, reason="their wish", new=True)
        assert ledger.verify()[0] == before
        with pytest.raises(InputError, match="knows no client 'eve'"):
            ledger.account("eve")
        ledger.set_budgets({"ada": Budget(5.5), "bob": Budget(7.0)}, reason="their wish")
        assert [ledger.account(name).budget.epsilon for name in ("ada", "bob", "dan")] == [5.5, 7.0, 12.0]
        assert [account.example for account in ledger.accounts()] == ["ada", "bob", "cleo"]


def test_a_budget_that_falls_meanwhile_counts_at_once(url: str) -> None:
    with begun(url) as (ledger, books):
        books.release(1, books.reserve(1), "")
        spent = ledger.account("ada").epsilon
        ledger.set_budgets({"ada": Budget(spent * 1.001)}, reason="her wish")
        with pytest.raises(BudgetError, match="'ada'"):
            books.reserve(2)
