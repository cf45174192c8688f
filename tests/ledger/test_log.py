"""The log: no change goes unnoticed, and anybody can check the chain."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nestegg import VerificationError
from nestegg.ledger import Ledger, schema
from nestegg.ledger.log import append, store_plan
from tests.ledger.ledgers import begun, spend, tamper, two_groups

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


@pytest.mark.parametrize("what", ["UPDATE withdrawals SET client = 2", "DELETE FROM withdrawals"])
def test_a_withdrawal_cannot_be_undone_unnoticed(what: str, url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 1)
        ledger.withdraw("ada", "enough")
    tamper(url, what)
    with Ledger(url) as ledger, pytest.raises(RuntimeError, match=r"\(withdraw\) is not what was written"):
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
