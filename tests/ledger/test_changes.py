"""Budgets that change, with reasons and authors, and names of clients."""

from __future__ import annotations

import unicodedata

import pytest

from nestegg import Budget, InputError
from nestegg.ledger import Ledger
from tests.conftest import Run
from tests.ledger.ledgers import NAMES, begun, spend, two_groups


def test_a_change_carries_its_reason_and_its_author(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 2)
        before = ledger.verify()[0]
        for reason, message in ((None, "'ada' has a budget; another one needs a reason"), (" ", "reason = ' '")):
            with pytest.raises(InputError, match=message):
                ledger.set_budgets({"ada": Budget(9.0)}, reason=reason)
        assert ledger.verify()[0] == before
        ledger.set_budgets({"ada": Budget(9.0)}, reason="a second study", author="Grace")
        ledger.set_budgets({"ada": Budget(9.0)})  # the same again is no change
        first, second = ledger.changes("ada")
        assert (first.epsilon, first.epsilon_before, first.reason, first.author) == (
            *(6.0, None),
            *("first budget", "the officer"),
        )
        assert (second.epsilon, second.epsilon_before, second.reason) == (9.0, 6.0, "a second study")
        assert (second.author, second.account, len(second.day)) == ("Grace", "fixed", len("2026-11-17"))
        assert ledger.latest_changes() == [second]
        assert [change.client for change in ledger.changes()] == [*NAMES, "ada"]
        ledger.verify()


def test_another_delta_is_not_silently_a_smaller_spending(url: str) -> None:
    with begun(url) as (ledger, books):
        ledger.set_budgets({"bob": Budget(6.0, 1e-6)}, reason="before anything was spent")
        spend(books, 3)
        spent = ledger.account("ada").epsilon
        with pytest.raises(
            InputError, match=rf"delta = 0\.001 would replace 1e-05.*= {spent:.6g}, and not.*--change-d"
        ):
            ledger.set_budgets({"ada": Budget(6.0, 1e-3)}, reason="why not")
        ledger.set_budgets({"ada": Budget(6.0, 1e-3)}, reason="the law says so", change_delta=True)
        ada = ledger.account("ada")
        assert ada.epsilon < spent
        assert ada.epsilon_at(1e-5) == pytest.approx(spent, rel=1e-12)


def test_an_unknown_name_is_refused_unless_it_is_announced(run: Run, url: str) -> None:
    with Ledger(url) as ledger:
        ledger.set_budgets({"client-1": Budget(5.0), "client-2": Budget(5.0)})  # an empty ledger takes everybody
        with pytest.raises(
            InputError, match=r"knows no client 'cleint-2'\. Did you mean 'client-2'\? A new client must"
        ):
            ledger.set_budgets({"client-1": Budget(6.0), "cleint-2": Budget(5.0)}, reason="more")
        assert [change.client for change in ledger.changes()] == ["client-1", "client-2"]
        with pytest.raises(InputError, match=r"knows no client 'cleint-1'\. Did you mean 'client-1'\?"):
            ledger.account("cleint-1")
        ledger.set_budgets({"eve": Budget(5.0)}, new=True)
        assert ledger.account("eve").budget == Budget(5.0)


def test_a_name_is_the_same_in_every_spelling_of_unicode(url: str) -> None:
    composed, apart = unicodedata.normalize("NFC", "Zoë"), unicodedata.normalize("NFD", "Zoë")
    assert composed != apart
    with Ledger(url) as ledger:
        ledger.set_budgets({apart: Budget(12.0), "bob": Budget(12.0), "cleo": Budget(12.0)})
        ledger.set_budgets({composed: Budget(13.0)}, reason="no second account")
        for name in (composed, apart):
            assert (ledger.account(name).example, ledger.account(name).budget.epsilon) == (composed, 13.0)
        with pytest.raises(InputError, match="3 different clients"):
            ledger.begin("monday", two_groups(), [apart, composed, "bob", "cleo"])
        spend(ledger.begin("monday", two_groups(), [apart, "bob", "cleo", "eve"], unknown=[Budget(12.0)] * 4), 1)
        assert ledger.account(composed).parts[0].rounds == 1
        with pytest.raises(InputError, match="the same client twice"):
            ledger.set_budgets({composed: Budget(14.0), apart: Budget(15.0)}, reason="which?")
        ledger.withdraw(apart, "enough")
        assert ledger.withdrawn() == {composed}
        ledger.verify()


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
