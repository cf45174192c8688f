"""The ledger: nobody over budget, refusals without a trace, one release a round, and no change unnoticed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from nestegg import Budget, Charge, Group, InputError, Plan, VerificationError, accounting, plan
from nestegg.accounting import compose
from nestegg.errors import BudgetError
from nestegg.ledger import Account, Ledger, Rule, RunBooks

from .examples import examples, slow

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
def begun(
    url: str, made: Plan | None = None, budgets: dict[str, Budget] | None = None, rule: str = "fixed"
) -> Iterator[tuple[Ledger, Any]]:
    with Ledger(url) as ledger:
        ledger.set_budgets(LIFE if budgets is None else budgets, rule=rule)
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
        tuesday = ledger.begin("tuesday", other, ("cleo", "new"), unknown=[Budget(1.0), Budget(4.5)], rule="fixed")
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
        assert Rule("fixed").epsilon(charged, delta) == pytest.approx(whole, rel=1e-12)
    assert Rule("fixed").epsilon((), 1e-5) == 0.0


@pytest.mark.parametrize("accountant", ["rdp", *slow("pld")])
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
        ledger.set_budgets({"ada": Budget(3.0)}, reason="she asked for it")
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
        ledger.set_budgets({"ada": Budget(3.0)}, reason="she asked for it")
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


def test_a_checkpoints_plan_that_cannot_be_the_runs_is_refused_without_a_trace(url: str) -> None:
    made = two_groups(spending_rate=1.0, accountant="gaussian", method="idp-fedavg")
    with begun(url, made, rule="gaussian") as (ledger, books):
        before = ledger.verify()[0]
        groups = made.groups
        named = replace(groups[0], group=replace(groups[0].group, name="other"))
        larger = [Group("strict", 3, Budget(5.0)), Group("open", 1, Budget(10.0))]
        cases = {
            "must be c σ": replace(made, clip_norm=made.clip_norm / 100),
            "other groups": replace(made, groups=(named, groups[1])),
            "it has other groups": plan(larger, 6, spending_rate=1.0, method="idp-fedavg"),
            "is not of the run 'monday'": two_groups(spending_rate=1.0, method="dp-fedavg"),
            "another number of rounds": two_groups(rounds=5, spending_rate=1.0, method="idp-fedavg"),
        }
        for message, foreign in cases.items():
            with pytest.raises(InputError, match=message):
                books.reconcile(upto(1), foreign)
        with pytest.raises(InputError, match="checkpoint of round 7 is not of the run 'monday'"):
            books.reconcile(upto(7))
        assert (ledger.verify()[0], books.plan.digest) == (before, made.digest)
        sampled = two_groups(spending_rate=0.5, method="idp-fedavg")  # a plan of this run, for all that can be told
        books.reconcile(upto(1), sampled)
        assert [account.epsilon > 0.0 for account in ledger.accounts()] == [True, True]  # it can still be read
        filled = {one.example: one.epsilon for one in ledger.accounts()}["ada"]
        assert (ledger.account("ada").epsilon, books.plan.digest) == (filled, sampled.digest)
        ledger.verify()


@pytest.mark.parametrize("accountant", ["rdp", *slow("pld")])
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


@pytest.mark.slow
@examples(20)
@given(data=st.data())
def test_nobody_goes_over_whatever_happens(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs with any groups, methods and rules, interleaved, crashed, rewound, re-planned and left by clients."""
    url = f"sqlite:///{tmp_path_factory.mktemp('any') / 'ledger.db'}"
    draw = data.draw
    with Ledger(url) as ledger:
        for name in NAMES:
            budget = Budget(draw(st.floats(1.0, 20.0)), draw(st.sampled_from([1e-5, 1e-6])))
            ledger.set_budgets({name: budget}, rule=draw(st.sampled_from(["fixed", "renyi"])), new=True)
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
            step = draw(st.sampled_from(["round", "round", "crash", "lose", "replan", "withdraw"]))
            done, planned = books.state.done, False
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
                    planned = True
                elif step == "withdraw":
                    ledger.withdraw(draw(st.sampled_from(NAMES)), "no more")
            except InputError:  # refused, or nothing left to do
                pass
            if planned:
                books.check_rest()  # what is planned is not refused
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
        ledger.set_budgets({"ada": Budget(ledger.account("ada").epsilon)}, reason="enough")
        with pytest.raises(InputError, match="group 'strict, client ada': epsilon = 6 at delta = 1e-05 cannot be met"):
            books.replan()
