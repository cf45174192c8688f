"""The ledger: nobody over budget, refusals without a trace, one release a round, and no change unnoticed."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, text

from nestegg import Budget, Charge, Group, InputError, Plan, VerificationError, accounting, plan
from nestegg.accounting import compose
from nestegg.errors import BudgetError
from nestegg.ledger import Account, Ledger, RunBooks, tables
from nestegg.ledger.accounts import epsilon
from nestegg.ledger.database import checked_url, insert_rows
from nestegg.ledger.log import append
from nestegg.ledger.plans import store_plan

NAMES = ("ada", "bob", "cleo", "dan")
LIFE = {name: Budget(epsilon) for name, epsilon in zip(NAMES, (6.0, 6.0, 12.0, 12.0), strict=True)}


def two_groups(epsilon: float = 5.0, rounds: int = 6, **settings: Any) -> Plan:
    groups = [
        Group("strict", 2, Budget(epsilon), saving_rate=0.5, transition=4),
        Group("open", 2, Budget(2 * epsilon)),
    ]
    return plan(groups, rounds, **settings)


def spend(books: RunBooks, rounds: int) -> None:
    for _ in range(rounds):
        round_ = books.state.done + 1
        books.release(round_, books.reserve(round_), f"result {round_}")
        books.check_rest()


def upto(rounds: int, *others: str) -> list[str]:
    """The results that `spend` releases, and others after them."""
    return [*(f"result {i}" for i in range(1, rounds + 1)), *others]


@contextmanager
def begun(url: str, made: Plan | None = None, budgets: dict[str, Budget] | None = None) -> Iterator[tuple[Ledger, Any]]:
    with Ledger(url) as ledger:
        ledger.set_budgets(LIFE if budgets is None else budgets)
        yield ledger, ledger.begin("monday", made or two_groups(), NAMES)


def oracle(account: Account, judge: RdpAccountant | PLDAccountant) -> float:
    """ε by one of Google's accountants, from the account's charges."""
    for q, sigma, rounds in account.charges:
        judge.compose(SelfComposedDpEvent(PoissonSampledDpEvent(q, GaussianDpEvent(sigma)), rounds))
    return float(judge.get_epsilon(account.budget.delta))


def test_an_account_composes_all_runs_as_the_judges_do(url: str) -> None:
    with begun(url) as (ledger, monday):
        spend(monday, 6)
        other = plan([Group("all", 2, Budget(4.0))], 9, accountant="pld")
        tuesday = ledger.begin("tuesday", other, ("cleo", "new"), [Budget(1.0), Budget(4.5)])
        spend(tuesday, 9)
        cleo, new = ledger.account("cleo"), ledger.account("new")
        assert (cleo.budget, new.budget) == (LIFE["cleo"], Budget(4.5))  # only strangers bring a budget
        assert [(part.run, part.group, part.rounds) for part in cleo.parts] == [
            ("monday", "open", 6),
            ("tuesday", "all", 9),
        ]
        for account in (cleo, new, ledger.account("ada")):
            assert account.epsilon == pytest.approx(oracle(account, RdpAccountant()), rel=2e-3)
            assert account.epsilon_pld == pytest.approx(oracle(account, PLDAccountant()), rel=2e-3)
        assert cleo.without("tuesday") == pytest.approx(10.0, rel=1e-6)
        assert cleo.within("tuesday") < cleo.epsilon < cleo.without("tuesday") + cleo.within("tuesday")
        by_peers = {account.example: account.epsilon for account in ledger.accounts()}
        assert by_peers["cleo"] == pytest.approx(cleo.epsilon, rel=1e-12)
        assert sum(account.clients for account in ledger.accounts()) == 5
        position, accounts = ledger.verify()
        assert position.entry == 4 + 2 * (6 + 9)
        assert not any(account.is_over for account in accounts)


@pytest.mark.parametrize("seed", range(8))
def test_few_orders_give_the_epsilon_of_all(seed: int) -> None:
    draw = random.Random(seed)
    charged = tuple(
        Charge(draw.uniform(0.001, 1.0), 10 ** draw.uniform(-0.7, 2.5), draw.randint(1, 300))
        for _ in range(draw.randint(1, 30))
    )
    for delta in (1e-3, 1e-5, 1e-12):
        whole = compose(accounting.RdpAccountant(), charged).epsilon(delta)[0]
        assert epsilon(charged, delta) == pytest.approx(whole, rel=1e-12)
    assert epsilon((), 1e-5) == 0.0


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_a_refusal_names_who_and_what_would_fit_and_leaves_no_trace(url: str, accountant: str) -> None:
    made = two_groups(accountant=accountant)
    with begun(url, made, LIFE | {"bob": Budget(3.0)}) as (ledger, books):
        with pytest.raises(
            BudgetError, match=r"'bob' of group 'strict' would go over budget: epsilon = 0 of 3 is spent"
        ):
            books.check_rest()
        before = ledger.verify()
        refused, message = 0, ""
        for round_ in range(1, 7):
            try:
                books.release(round_, books.reserve(round_), "result")
            except BudgetError as error:
                refused, message = round_, str(error)
                break
            before = ledger.verify()
        assert 1 < refused <= 6
        assert f"round {refused} would make it" in message
        assert "would fit. Nothing was charged." in message
        assert ledger.verify()[0] == before[0]
        assert books.state.done == refused - 1
        assert ledger.account("bob").epsilon <= 3.0 * (1 + 1e-9) or accountant == "pld"
        assert ledger.account("bob").epsilon_pld <= 3.0
        # What would fit does fit, and hardly less would.
        noise = float(message.split("noise of ")[1].split(" would fit")[0])
        bob = ledger.account("bob")
        for factor, fits in ((1.01, True), (0.97, False)):
            q = made.groups[0].sampling_rate[refused - 1]
            parts = (*bob.parts, type(bob.parts[0])("next", "strict", (Charge(q, noise * factor),)))
            then = Account("bob", 1, bob.budget, parts)
            assert ((then.epsilon if accountant == "rdp" else then.epsilon_pld) <= 3.0) == fits


def test_nothing_is_forgiven_but_rounding(url: str) -> None:
    with begun(url, budgets=LIFE | {"bob": Budget(5.0 * (1 - 1e-7))}) as (_, books):
        with pytest.raises(BudgetError, match="5 of these 6 rounds would fit"):
            books.check_rest()
        for round_ in range(1, 6):
            books.release(round_, books.reserve(round_), "")
        with pytest.raises(BudgetError, match="'bob' of group 'strict' would"):
            books.reserve(6)


def test_a_round_is_tried_again_under_its_reservation_and_released_once(url: str) -> None:
    with begun(url) as (ledger, books):
        lost = books.reserve(1)
        spent = ledger.account("ada").epsilon
        claim = ledger.books("monday").reserve(1)  # after a crash, or in a second process
        assert ledger.account("ada").epsilon == spent > 0.0
        with pytest.raises(InputError, match="taken over by another process"):
            books.release(1, lost, "stale")
        books.release(1, claim, "result")
        for again in (claim, lost):
            with pytest.raises(InputError, match="taken over"):
                books.release(1, again, "twice")
        with pytest.raises(InputError, match="was released; it is never run again"):
            books.reserve(1)
        with pytest.raises(InputError, match="round 3 of run 'monday' is not the next one, which is 2"):
            books.reserve(3)
        spend(books, 5)
        with pytest.raises(InputError, match="not the next one"):
            books.reserve(7)
        assert ledger.account("ada").parts[0].rounds == 6


def test_reconciling_goes_to_the_safe_side_and_says_so(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 2)
        assert books.reconcile(upto(2)) == []
        claim = books.reserve(3)
        assert books.reconcile(upto(2)) == [
            "Round 3 was reserved and never released: it runs under the same reservation."
        ]
        assert books.reconcile(upto(2, "c")) == [
            "Round 3 had its checkpoint but was not marked as released: it is now."
        ]
        with pytest.raises(InputError, match="taken over"):
            books.release(3, claim, "late")
        with pytest.raises(InputError, match="another result of round 3 was released"):
            books.reconcile(upto(2, "another"))
        assert books.reconcile(upto(2, "c", "d", "e")) == [
            "Round 4 is in the checkpoint and was not in the ledger: it is charged now.",
            "Round 5 is in the checkpoint and was not in the ledger: it is charged now.",
        ]
        assert ledger.account("ada").parts[0].rounds == 5
        with pytest.raises(InputError, match="another result of round 4 was released"):
            books.reconcile(upto(2, "c", "x"))
        assert books.reconcile(upto(2, "c")) == [
            "The released result of rounds 4 to 5 is lost: it stays paid for, and is to be paid for again."
        ]
        states = [charge["state"] for charge in ledger.charges() if charge["group"] == "open"]
        assert states == ["released"] * 3 + ["lost"] * 2
        with pytest.raises(InputError, match="has gone back behind the checkpoint of round 5, which is void"):
            books.reconcile(upto(2, "c", "d", "e"))
        books.reserve(4)
        assert ledger.account("ada").parts[0].rounds == 6  # round 4 is paid twice
        ledger.verify()


def test_a_plan_that_was_changed_meanwhile_stops_whoever_goes_by_the_old_one(url: str) -> None:
    with begun(url) as (ledger, books):
        claim = books.reserve(1)
        ledger.set_budgets({"ada": Budget(3.0)})
        ledger.books("monday").replan()
        books.release(1, claim, "result 1")  # this one was paid for by the old plan
        with pytest.raises(InputError, match="was planned anew meanwhile: it must be opened again"):
            books.reserve(2)
        spend(ledger.books("monday"), 5)
        assert ledger.account("ada").epsilon == pytest.approx(3.0, rel=1e-3)
        ledger.verify()


def test_only_the_released_result_of_a_round_can_be_gone_back_to(url: str) -> None:
    """Two copies of a run: what the loser of a round has on its disk never counts, now or later."""
    with begun(url) as (_, books):
        spend(books, 3)
        for results in (upto(2, "the loser's"), upto(1, "the loser's"), upto(2, "the loser's", "its next"), ["x"]):
            with pytest.raises(InputError, match=r"another result of round \d was released"):
                books.reconcile(results)
        assert books.reconcile(upto(2))
        assert books.reconcile([])


def test_a_complete_run_is_not_undone_by_an_older_copy(url: str) -> None:
    with begun(url) as (_, books):
        spend(books, 6)
        with pytest.raises(InputError, match="is complete; this checkpoint of round 2 is an older one"):
            books.reconcile(upto(2))
        assert books.reconcile(upto(6)) == []


def test_a_round_reserved_by_another_plan_than_it_was_made_by_is_charged_by_that_one(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 2)
        books.reserve(3)
        other = two_groups(4.0)
        assert len(books.reconcile(upto(3), other)) == 2
        strict = [(c["round"], c["noise_multiplier"], c["state"]) for c in ledger.charges() if c["group"] == "strict"]
        mine, theirs = (made.groups[0].noise_multiplier[2] for made in (two_groups(), other))
        assert strict[2:] == [(3, mine, "lost"), (3, theirs, "released")]
        ledger.verify()


def test_forgotten_rounds_are_charged_by_the_plan_they_were_made_by(tmp_path: Path) -> None:
    url, backup = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "backup.db"
    with begun(url) as (ledger, books):
        spend(books, 1)
        ledger.backup(backup)
        spend(books, 3)
        first, spent = books.plan, ledger.account("ada").epsilon
    with Ledger(backup) as ledger:  # an old ledger was restored, and the rest planned anew before anybody noticed
        ledger.set_budgets({"ada": Budget(3.0)})
        books = ledger.books("monday")
        books.replan()
        assert len(books.reconcile(upto(4), first)) == 4
        assert ledger.account("ada").epsilon == pytest.approx(spent, rel=1e-12)
        assert books.plan.digest == first.digest
        with pytest.raises(VerificationError, match="'ada' is over budget"):  # it is the truth
            ledger.verify()
    with begun(f"sqlite:///{tmp_path / 'other.db'}") as (ledger, books):
        spend(books, 1)
        stranger = two_groups(4.0)  # of a plan that this ledger has forgotten too
        assert books.reconcile(upto(2), stranger)[0].startswith(f"The plan {stranger.digest[:16]} of the checkpoint")
        assert books.plans == [two_groups().digest, stranger.digest]
        ledger.verify()


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_lost_rounds_are_planned_around(url: str, accountant: str) -> None:
    with begun(url, two_groups(accountant=accountant), LIFE | {"ada": Budget(5.0)}) as (ledger, books):
        spend(books, 5)
        books.reconcile(upto(3))
        with pytest.raises(BudgetError, match="'ada' of group 'strict'"):
            books.check_rest()
        old = books.plan
        new = books.replan()
        assert new.digest != old.digest
        assert books.plans == [old.digest, new.digest]
        new.verify()
        for before, after in zip(old.groups, new.groups, strict=True):
            assert after.noise_multiplier[:3] == before.noise_multiplier[:3]
            assert min(after.noise_multiplier[3:]) > max(before.noise_multiplier[3:])
        books.reconcile(upto(3))
        spend(books, 3)
        ada = ledger.account("ada")
        assert (ada.epsilon if accountant == "rdp" else ada.epsilon_pld) == pytest.approx(5.0, rel=2e-3)
        # dan could afford more for life, but this run was to spend 10 of it.
        assert ledger.account("dan").epsilon_pld <= 10.0
        assert not any(account.is_over for account in ledger.accounts())
        with pytest.raises(InputError, match="no rounds left to plan"):
            books.replan()
        ledger.verify()


def test_a_reserved_round_stays_as_it_was_when_the_rest_is_planned_anew(url: str) -> None:
    with begun(url) as (ledger, books):
        claim = books.reserve(1)
        other = ledger.begin("elsewhere", plan([Group("all", 1, Budget(4.0))], 3), ("ada",))
        spend(other, 3)
        new = books.replan()
        assert [row.noise_multiplier[0] for row in new.groups] == [
            row.noise_multiplier[0] for row in two_groups().groups
        ]
        books.release(1, claim, "result 1")
        spend(books, 5)
        assert ledger.account("ada").epsilon == pytest.approx(6.0, rel=1e-3)
        assert ledger.account("bob").epsilon < 5.0  # of the same group, so with the same noise


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_nobody_goes_over_whatever_happens(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs with any groups and methods, interleaved, crashed, rewound and re-planned."""
    url = f"sqlite:///{tmp_path_factory.mktemp('any') / 'ledger.db'}"
    draw = data.draw
    with Ledger(url) as ledger:
        ledger.set_budgets({n: Budget(draw(st.floats(1.0, 20.0)), draw(st.sampled_from([1e-5, 1e-6]))) for n in NAMES})
        running, released = [], 0
        for i in range(draw(st.integers(1, 3))):
            names = draw(st.permutations(NAMES))[: draw(st.integers(2, 4))]
            first = draw(st.integers(1, len(names) - 1))
            groups = [
                Group("one", first, Budget(draw(st.floats(1.0, 8.0)))),
                Group("two", len(names) - first, Budget(draw(st.floats(1.0, 8.0))), saving_rate=0.3),
            ]
            method = draw(st.sampled_from(["spend-as-you-go", "idp-fedavg", "adaptive-clipping", "shaped"]))
            running.append(ledger.begin(f"run {i}", plan(groups, 4, method=method), names))
        for _ in range(draw(st.integers(1, 14))):
            books = draw(st.sampled_from(running))
            step = draw(st.sampled_from(["round", "round", "crash", "lose", "replan"]))
            done = books.state.done
            try:
                if step in ("round", "crash"):
                    claim = books.reserve(done + 1)
                    if step == "round":
                        released += 1
                        books.release(done + 1, claim, f"result {released}")
                elif step == "lose" and done:
                    books.reconcile([books.state.results[round_] for round_ in range(1, done)])
                elif step == "replan":
                    books.replan().verify()
                    books.check_rest()
            except InputError:  # refused, or nothing left to do
                pass
            if books.plan.method == "adaptive-clipping":  # one noise for all, whatever their histories
                assert len({row.noise_multiplier for row in books.plan.groups}) == 1
            for account in ledger.accounts():
                assert account.epsilon <= account.budget.epsilon * (1 + 1e-12)
        for account in ledger.verify()[1]:
            judge = PLDAccountant(value_discretization_interval=1e-3)
            assert oracle(account, judge) <= account.budget.epsilon * (1 + 1e-9)


def test_different_deltas_are_planned_each_at_its_own(url: str) -> None:
    life = {"ada": Budget(8.0), "bob": Budget(8.0, 1e-3), "cleo": Budget(900.0, 1e-12), "dan": Budget(12.0)}
    with begun(url, two_groups(), life) as (ledger, books):
        spend(ledger.begin("elsewhere", plan([Group("all", 2, Budget(6.0))], 5), ("ada", "bob")), 5)
        books.replan().verify()
        spend(books, 6)
        assert ledger.account("ada").epsilon == pytest.approx(8.0, rel=1e-3)
        assert ledger.account("bob").epsilon < 8.0
        ledger.verify()


def test_a_plan_that_others_have_overtaken_is_made_again(url: str) -> None:
    with begun(url, budgets=LIFE | {"ada": Budget(5.0)}) as (ledger, books):
        other = ledger.begin("elsewhere", plan([Group("all", 1, Budget(4.0))], 3), ("ada",))
        seen = []

        def meanwhile(made: Plan) -> None:
            seen.append(made.digest)
            if other.state.done < 2:
                spend(other, 1)

        made = books.replan(meanwhile)
        assert seen[-1] == made.digest == books.plan.digest
        assert len(set(seen)) == len(seen) == 3
        spend(books, 6)
        assert ledger.account("ada").epsilon == pytest.approx(5.0, rel=1e-3)


def test_where_nothing_is_left_no_noise_is_enough(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(ledger.begin("elsewhere", plan([Group("all", 1, Budget(6.0))], 5), ("ada",)), 5)
        ledger.set_budgets({"ada": Budget(ledger.account("ada").epsilon)})
        with pytest.raises(InputError, match="group 'strict, client ada': epsilon = 6 at delta = 1e-05 cannot be met"):
            books.replan()


def test_budgets_rise_and_fall_but_not_below_what_is_spent(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 6)
        before = ledger.verify()[0]
        with pytest.raises(
            InputError, match=r"client 'ada': epsilon = 3 at delta = 1e-05 is below what it has spent, 5"
        ):
            ledger.set_budgets({"eve": Budget(1.0), "bob": Budget(7.0), "ada": Budget(3.0)})
        assert ledger.verify()[0] == before
        with pytest.raises(InputError, match="knows no client 'eve'"):
            ledger.account("eve")
        ledger.set_budgets({"ada": Budget(5.5), "bob": Budget(7.0)})
        assert [ledger.account(name).budget.epsilon for name in ("ada", "bob", "dan")] == [5.5, 7.0, 12.0]
        assert [account.example for account in ledger.accounts()] == ["ada", "bob", "cleo"]


def test_a_budget_that_falls_meanwhile_counts_at_once(url: str) -> None:
    with begun(url) as (ledger, books):
        books.release(1, books.reserve(1), "")
        spent = ledger.account("ada").epsilon
        ledger.set_budgets({"ada": Budget(spent * 1.001)})
        with pytest.raises(BudgetError, match="'ada'"):
            books.reserve(2)


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
    "a budget after the end": "INSERT INTO budgets VALUES (1, 1000000, 99.0, 0.1)",
    "a charge after the end": "INSERT INTO charges VALUES (1000000, 1, 0.5, 2.0)",
    "a run from nowhere": "INSERT INTO runs VALUES (3, 'sunday')",
    "a group from nowhere": "INSERT INTO groups VALUES (9, 2, 'nobody')",
    "a member from nowhere": "INSERT INTO members VALUES (1, 9)",
    "a client from nowhere": "INSERT INTO clients VALUES (9, 'zoe')",
    "a charge before the beginning": "INSERT INTO charges VALUES (0, 1, 0.5, 2.0)",
    "a budget before the beginning": "INSERT INTO budgets VALUES (1, 0, 99.0, 0.1)",
    "a budget of nobody": "INSERT INTO budgets VALUES (77, 1, 5.0, 0.1)",
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
            insert_rows(connection, tables.charges, ((entry, *row) for row in rows))
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
        with pytest.raises(InputError, match="is a ledger of version 7; this nestegg knows versions up to 1"):
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

    monkeypatch.setattr(tables, "MIGRATIONS", (*tables.MIGRATIONS, fails))
    with pytest.raises(InputError, match="is an older ledger, or empty: it must first be opened to write"):
        Ledger(url, read_only=True)
    with pytest.raises(ZeroDivisionError):
        Ledger(url)
    (backup,) = tmp_path.glob("*.version-1.backup")
    backup.unlink()
    monkeypatch.setattr(tables, "MIGRATIONS", (tables.MIGRATIONS[0], notes))
    with Ledger(url) as ledger:
        assert ledger.verify()[0] == head
        with ledger._database.reading() as connection:
            assert "notes" in tables_in(connection)
            assert "halfway" not in tables_in(connection)
            assert tables.version_of(connection, "it") == 2
    Ledger(url).close()  # once only
    (backup,) = tmp_path.glob("*.version-1.backup")
    monkeypatch.setattr(tables, "MIGRATIONS", tables.MIGRATIONS[:1])
    with Ledger(f"sqlite:///{backup}", read_only=True) as ledger:
        assert ledger.verify()[0] == head


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
            before = connection.execute(text("SELECT entry FROM head")).scalar()
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
                    "SELECT name, epsilon, delta FROM budgets NATURAL JOIN clients WHERE entry = ? ORDER BY client",
                    [entry],
                ).fetchall()
            elif fields[1] == "run":
                rows = database.execute("SELECT name FROM runs").fetchall()
                rows += database.execute('SELECT "group", name FROM groups ORDER BY "group"').fetchall()
                rows += database.execute(
                    'SELECT "group", name FROM members NATURAL JOIN clients ORDER BY "group", client'
                ).fetchall()
            lines = [previous, dumps(fields), *map(dumps, rows)]
            previous = sha256("".join(line + "\n" for line in lines).encode()).hexdigest()
            assert previous == stated
