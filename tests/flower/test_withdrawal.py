"""A client leaves a run, or withdraws for good: what was pledged is paid, and nothing is answered any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestegg import Budget, Group, InputError, Ledger
from nestegg import plan as make_plan
from nestegg.flower.terms import Terms
from nestegg.ledger import RunBooks
from tests.conftest import Run
from tests.flower.guards import exact, guard_of, make_terms, spent


def test_a_run_that_ended_early_can_be_left(tmp_path: Path, run: Run) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    with pytest.raises(InputError, match="after = 0 must be a whole number"):
        guard.leave("monday", 0)
    answer = run("flower", "leave", tmp_path, "monday", "--after", 1)
    assert (answer.code, answer.out) == (0, "Run monday is left after round 1.\n")
    assert run("flower", "leave", tmp_path, "monday", "--after", 1).code == 2
    assert run("flower", "leave", tmp_path / "none", "monday", "--after", 1).code == 2
    cheap = make_plan([Group("middle", 6, Budget(2.0))], rounds=4, spending_rate=1.0, clip_norm=1.0)
    other = Terms("tuesday", cheap, "flat", 0, (1.0,) * 4)
    assert guard.enrol(other) == "middle"
    for refused in (lambda: guard.admit(terms.order("middle", 2)), lambda: guard.enrol(terms)):
        with pytest.raises(InputError):
            refused()


def test_a_client_that_withdraws_answers_nothing_any_more(tmp_path: Path, run: Run) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    answer = run("flower", "withdraw", tmp_path, "--reason", "moved away", "--author", "Grace")
    assert (answer.code, answer.out) == (0, "This client has withdrawn.\n")
    assert spent(tmp_path) == pytest.approx(exact(terms, 4))  # how far the run has come it does not know
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert (ledger.account("own").withdrawn, list(ledger.changes("own"))[-1].reason) == (True, "moved away")
    for refused in (
        lambda: guard.admit(terms.order("middle", 2)),
        lambda: guard.enrol(terms),
        lambda: guard.enrol(make_terms("tuesday")),
        lambda: guard.leave("monday", 4),
        lambda: guard.withdraw("again"),
    ):
        with pytest.raises(InputError, match="this client has withdrawn: it answers nothing any more"):
            refused()
    assert run("flower", "withdraw", tmp_path / "none", "--reason", "x").code == 2


@pytest.mark.parametrize("epsilon", [3.0, 1.0])  # below what is pledged, and below what is spent
def test_no_budget_is_too_small_to_withdraw_or_to_leave(tmp_path: Path, epsilon: float) -> None:
    terms, folders = make_terms(), [tmp_path / "gone", tmp_path / "left"]
    for folder in folders:
        guard_of(folder).enrol(terms)
        guard_of(folder).admit(terms.order("middle", 1))
        with pytest.raises(InputError, match=r"would go over budget|below what it has spent"):
            guard_of(folder, epsilon).admit(terms.order("middle", 4))
        with Ledger(folder / "ledger.db") as ledger:
            assert ledger.account("own").epsilon == pytest.approx(exact(terms, 1))  # a refusal charges nothing
    guard_of(folders[0], epsilon).withdraw("enough")
    guard_of(folders[1], epsilon).leave("monday", 3)
    for folder, rounds in zip(folders, (4, 3), strict=True):
        with Ledger(folder / "ledger.db") as ledger:
            assert ledger.account("own").epsilon == pytest.approx(exact(terms, rounds))
            assert [one.epsilon for one in ledger.accounts()] == [pytest.approx(exact(terms, rounds))]
        with pytest.raises(InputError, match=r"has withdrawn|not one that this client is enrolled in"):
            guard_of(folder).admit(terms.order("middle", 4))


def test_a_withdrawal_counts_whatever_happens_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    guard.admit(terms.order("middle", 1))
    with monkeypatch.context() as patch:
        patch.setattr(RunBooks, "reconcile", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            guard.withdraw("enough")
    with pytest.raises(InputError, match="this client has withdrawn"):
        guard.admit(terms.order("middle", 2))
    assert spent(tmp_path) == pytest.approx(exact(terms, 1))
    with pytest.raises(InputError, match="this client has withdrawn"):
        guard.withdraw("again")
    assert spent(tmp_path) == pytest.approx(exact(terms, 4))  # as was pledged


def test_a_ledger_that_was_told_of_a_withdrawal_is_enough(tmp_path: Path, run: Run) -> None:
    terms, guard = make_terms(), guard_of(tmp_path)
    guard.enrol(terms)
    assert run("ledger", "withdraw", "own", "--reason", "x", "--ledger", tmp_path / "ledger.db").code == 0
    with pytest.raises(InputError, match="this client has withdrawn"):
        guard.admit(terms.order("middle", 1))
