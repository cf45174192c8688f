"""Tables of older versions: migrated after a backup, with every hash as it was."""

from __future__ import annotations

import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, MetaData, create_engine, text

from nestegg import Budget, Group, InputError, VerificationError, plan
from nestegg.ledger import Ledger, Rule, schema
from nestegg.ledger.database import checked_url
from nestegg.ledger.log import _link
from tests.conftest import Run
from tests.ledger.ledgers import begun, spend, tables_in

V1_HEAD = "881810cbebce53695c957406b4935095d2fcaa3b56add07dac0bbfe509dfb1a4"
KELVIN = "\u212aada"  # is neither NFC nor NFD: both are an ordinary K


def version_1(url: str, folder: Path) -> None:
    """A ledger that nestegg wrote before accounts had rules: two rounds released, one reserved, a budget raised."""
    path = folder / "version-1.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((Path(__file__).parent / "ledger-v1.sql").read_text())
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
