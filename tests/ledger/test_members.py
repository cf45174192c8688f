"""The members of a run: what they cannot afford is refused without a trace, and who withdraws pays no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nestegg import Budget, Charge, Group, InputError, plan
from nestegg.errors import BudgetError
from nestegg.ledger import Account
from tests.examples import slow
from tests.ledger.ledgers import LIFE, NAMES, begun, spend, two_groups


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


def test_where_nothing_is_left_no_noise_is_enough(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(ledger.begin("elsewhere", plan([Group("all", 1, Budget(6.0))], 5, method="idp-fedavg"), ("ada",)), 5)
        ledger.set_budgets({"ada": Budget(ledger.account("ada").epsilon)}, reason="enough")
        with pytest.raises(InputError, match="group 'strict, client ada': epsilon = 6 at delta = 1e-05 cannot be met"):
            books.replan()


def test_a_budget_that_falls_meanwhile_counts_at_once(url: str) -> None:
    with begun(url) as (ledger, books):
        books.release(1, books.reserve(1), "")
        spent = ledger.account("ada").epsilon
        ledger.set_budgets({"ada": Budget(spent * 1.001)}, reason="her wish")
        with pytest.raises(BudgetError, match="'ada'"):
            books.reserve(2)


def test_a_client_withdraws_and_its_runs_go_on_without_it(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 2)
        books.reserve(3)
        assert books.withdrawn() == frozenset()
        ledger.withdraw("cleo", "moved away", author="Grace")  # the round that is reserved may have had her data
        assert books.withdrawn() == {2}
        books.release(3, books.reserve(3), "result 3")
        spent = ledger.account("cleo").epsilon
        with pytest.raises(InputError, match="has reserved no round: who has withdrawn is asked after that"):
            books.withdrawn()  # asked before, a withdrawal in between would be sampled and not charged
        for round_ in (4, 5):
            claim = books.reserve(round_)
            assert books.withdrawn() == ledger.books("monday").withdrawn() == {2}
            books.release(round_, claim, f"result {round_}")
        cleo, dan = ledger.account("cleo"), ledger.account("dan")
        assert (cleo.parts[0].rounds, dan.parts[0].rounds) == (3, 5)
        assert (cleo.withdrawn, dan.withdrawn, cleo.epsilon) == (True, False, spent)
        by_peers = {account.example: account for account in ledger.accounts()}
        assert (by_peers["cleo"].epsilon, by_peers["cleo"].withdrawn) == (pytest.approx(spent, rel=1e-12), True)
        assert dict(ledger.clients())["cleo"].charges == by_peers["cleo"].charges
        with pytest.raises(InputError, match=r"'cleo' withdrew on \d{4}-\d\d-\d\d: it is in no new run"):
            ledger.begin("tuesday", two_groups(), NAMES)
        changes: tuple[Callable[[], object], ...] = (
            lambda: ledger.withdraw("cleo", "again"),
            lambda: ledger.set_budgets({"cleo": Budget(99.0)}, reason="come back"),
        )
        for change in changes:
            with pytest.raises(InputError, match="'cleo' has withdrawn"):
                change()
        with pytest.raises(InputError, match="knows no client 'claudia'"):
            ledger.withdraw("claudia", "who?")
        last = list(ledger.changes("cleo"))[-1]
        assert (last.kind, last.reason, last.author, last.epsilon) == ("withdrawal", "moved away", "Grace", None)
        ledger.verify()


def test_who_has_withdrawn_is_no_reason_to_refuse_or_to_plan_more_noise(url: str) -> None:
    """A member without budget stops a run; once it has withdrawn, the others go on as planned."""
    with begun(url, budgets={"ada": Budget(4.0), "bob": Budget(6.0), "cleo": Budget(12.0), "dan": Budget(12.0)}) as (
        ledger,
        books,
    ):
        with pytest.raises(InputError, match="'ada' of group 'strict'"):
            books.check_rest()
        ledger.withdraw("ada", "enough")
        books.check_rest()
        spend(books, 5)
        ledger.withdraw("bob", "enough")  # now the group is empty
        assert books.accounts()["strict"].example in ("ada", "bob")
        spend(books, 1)
        ledger.withdraw("cleo", "all")
        ledger.withdraw("dan", "all")
        assert {name: account.withdrawn for name, account in books.accounts().items()} == {"strict": True, "open": True}
        ledger.verify()
