"""All clients refuse: the server stops at once, and by that tells nothing of a cohort; each error names its step."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, MetricRecord

from nestegg import Budget, InputError, Ledger
from nestegg.flower import (
    Enrolling,
    OwnAccount,
    PlannedStrategy,
    PreconditionUnmet,
    enrolment,
    exchange,
    private_client_app,
)
from nestegg.flower.aggregation import NoisySum
from nestegg.flower.in_process import LocalGrid
from nestegg.flower.refusals import Refusals
from nestegg.flower.session import Session
from nestegg.flower.wire import ENROL
from nestegg.runs.folder import StateFolder
from tests.grid import client_app, model, small_plan

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


def rounds_of(folder: Path) -> tuple[int, int]:
    """Rounds that are released, and rounds that are paid for."""
    with Ledger(folder / "private" / "ledger.db", read_only=True) as ledger:
        (state,) = ledger.history().runs.values()
    return state.done, len(state.paid)


def forgetting(accounts: Path, *numbers: int) -> Evaluate:
    """Clients lose their accounts after round 1, so that they know nothing of the run; some, or all by default."""

    def evaluate(round_: int, arrays: ArrayRecord) -> None:
        if round_ == 1:
            for number in numbers or range(6):
                shutil.rmtree(accounts / str(number))

    return evaluate


def test_enrolment_does_not_wait_for_nodes_that_have_all_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("the server waits")

    monkeypatch.setattr(time, "sleep", wait)
    poor = private_client_app(lambda context: OwnAccount(tmp_path / "poor", Budget(0.1)))
    grid, strategy = LocalGrid(poor, 6), PlannedStrategy(small_plan(), tmp_path / "run", enrolling=Enrolling())
    with pytest.raises(PreconditionUnmet, match=r"enrolment: all 6 nodes have refused: their own logs"):
        strategy.start(grid, model())
    assert {m.metadata.message_type for m in grid.asked} == {ENROL}
    few = LocalGrid(poor, 5)  # a sixth node may come, and agree
    with pytest.raises(AssertionError, match="the server waits"):
        PlannedStrategy(small_plan(), tmp_path / "few").start(few, model())


def test_a_run_that_all_refuse_stops_at_once_and_goes_on_when_they_do_not(tmp_path: Path) -> None:
    accounts, plan = tmp_path / "clients", small_plan(3)
    grid = LocalGrid(client_app(accounts), 6)
    strategy = PlannedStrategy(plan, tmp_path / "run")
    with pytest.raises(PreconditionUnmet, match="round 2, sending orders and reading replies: all 6 clients have ref"):
        strategy.start(grid, model(), evaluate_fn=forgetting(accounts))
    assert rounds_of(tmp_path / "run") == (1, 2)  # round 2 is paid for and not released; round 3 was not begun
    PlannedStrategy(plan, tmp_path / "run").start(grid, model())
    assert rounds_of(tmp_path / "run") == (3, 3)


def test_a_cohort_that_refuses_does_not_stop_a_run_in_which_others_might_have_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To stop would tell that nobody else was drawn. Members 0 and 1 are those of the strict group."""
    monkeypatch.setattr(PlannedStrategy, "_cohort", lambda self, round_: list(range(6)) if round_ == 1 else [0, 1])
    accounts = tmp_path / "clients"
    grid = LocalGrid(client_app(accounts), 6)
    PlannedStrategy(small_plan(2), tmp_path / "run").start(grid, model(), evaluate_fn=forgetting(accounts, 0, 1))
    assert rounds_of(tmp_path / "run") == (2, 2)


def test_training_that_fails_for_everybody_does_not_stop_a_run(tmp_path: Path) -> None:
    """That depends on data."""

    def fail(arrays: ArrayRecord) -> ArrayRecord:
        raise InputError("no data today.")

    PlannedStrategy(small_plan(1), tmp_path / "run").start(LocalGrid(client_app(tmp_path / "c", fail), 6), model())
    assert rounds_of(tmp_path / "run") == (1, 1)


def test_a_refusal_is_never_forgotten_and_who_has_withdrawn_is_not_asked() -> None:
    refusals = Refusals(3)
    refusals.check(withdrawn=())
    for client in (0, 2):
        refusals.note(client)
    refusals.check(withdrawn=())
    with pytest.raises(InputError, match="all 2 clients"):
        refusals.check(withdrawn={1})
    refusals.note(1)
    with pytest.raises(InputError, match="all 3 clients"):
        refusals.check(withdrawn=())
    Refusals(2).check(withdrawn={0, 1})  # nobody has refused


def failing(*arguments: Any, **options: Any) -> Any:
    raise InputError("no luck.")


STEPS: dict[str, tuple[Any, str]] = {
    "opening the run": (Session, "begin"),
    "enrolment": (Session, "enrol"),
    "opening the ledger": (Session, "open_books"),
    "round 1, enrolment of nodes that are back, or late": (enrolment.Enrolment, "step"),
    "round 1, paying for it in the ledger": (Session, "reserve"),
    "round 1, making out orders": (PlannedStrategy, "_cohort"),
    "round 1, sending orders and reading replies": (exchange, "push"),
    "round 1, adding noise": (NoisySum, "finish"),
    "round 1, saving and releasing it": (StateFolder, "save_checkpoint"),
    "writing the model": (Session, "finish"),
}


@pytest.mark.parametrize("name", STEPS)
def test_an_error_names_the_step_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    owner, method = STEPS[name]
    grid, strategy = LocalGrid(client_app(tmp_path / "clients"), 6), PlannedStrategy(small_plan(1), tmp_path / "run")

    def break_it(round_: int, arrays: ArrayRecord) -> None:
        monkeypatch.setattr(owner, method, failing)

    if not name.startswith("round"):
        break_it(0, model())
    with pytest.raises(PreconditionUnmet, match=f"^{name}: no luck.$"):
        strategy.start(grid, model(), evaluate_fn=break_it)


def test_an_error_of_the_users_own_code_keeps_its_type_and_names_the_step(tmp_path: Path) -> None:
    def evaluate(round_: int, arrays: ArrayRecord) -> None:
        raise KeyError("a.weigth")

    grid = LocalGrid(client_app(tmp_path / "clients"), 6)
    with pytest.raises(KeyError) as caught:
        PlannedStrategy(small_plan(1), tmp_path / "run").start(grid, model(), evaluate_fn=evaluate)
    assert caught.value.__notes__ == ["nestegg was at this step: round 0, evaluate_fn."]
