"""A checkpoint and the log that disagree are brought together, always towards the safe side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nestegg import Budget, Group, InputError, VerificationError, plan
from nestegg.ledger import Ledger
from tests.ledger.ledgers import begun, spend, two_groups, upto


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


def test_rounds_that_a_ledger_had_forgotten_are_charged_to_who_has_withdrawn_since(tmp_path: Path) -> None:
    """They may have had its data: the checkpoint that holds them is older than the withdrawal."""
    url, backup = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "backup.db"
    with begun(url) as (ledger, books):
        spend(books, 1)
        ledger.backup(backup)
        spend(books, 3)
        spent = ledger.account("ada").epsilon
    with Ledger(backup) as ledger:
        ledger.withdraw("ada", "enough")
        ledger.books("monday").reconcile(upto(4))
        assert ledger.account("ada").parts[0].rounds == 4
        assert ledger.account("ada").epsilon == pytest.approx(spent, rel=1e-12)
        assert {account.example: account.parts[0].rounds for account in ledger.accounts()}["ada"] == 4
        ledger.verify()
