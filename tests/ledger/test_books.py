"""The books of a run: one release a round, under one reservation, and plans for what is left."""

from __future__ import annotations

import pytest

from nestegg import Budget, Group, InputError, Plan, plan
from nestegg.errors import BudgetError
from tests.examples import slow
from tests.ledger.ledgers import LIFE, NAMES, begun, spend, two_groups, upto


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


@pytest.mark.no_cover
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
