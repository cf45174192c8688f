"""The ledger against its model: whatever is done in whatever order, by two processes that die anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from nestegg import Budget
from tests.examples import examples
from tests.ledger.deaths import Fuse
from tests.ledger.machine import RUNS, LedgerMachine, planned


@pytest.mark.parametrize("step", ["set_budgets", "withdraw", "begin", "reserved", "released", "reconciled", "replan"])
def test_a_step_that_dies_at_any_statement_is_done_or_has_left_no_trace(step: str, url: str) -> None:
    fuse = Fuse()
    with fuse.laid():
        machine = LedgerMachine(url, fuse)
        machine.two_runs("renyi", [12.0] * 4, planned(0.5, 2.0))
        at, run = machine.processes[0], RUNS[0]
        ready = {"released": 1, "reconciled": 2, "replan": 1}.get(step, 0)
        for _ in range(ready):
            assert machine.reserved(at, run, 0, None)
            if step != "released":
                machine.released(at, run, None)
        if step == "reconciled":  # two rounds were released, and one of them is lost
            at.disk[run] = at.disk[run][0][:1], at.disk[run][1]
        steps: dict[str, Callable[[int], object]] = {
            "set_budgets": lambda n: machine.set_budgets(0, {"ada": Budget(9.0)}, None, "her wish", False, n),
            "withdraw": lambda n: machine.withdraw(0, "ada", n),
            "begin": lambda n: machine.begin(0, RUNS[2], ("ada", "eve"), planned(1.0, 1.0), True, n),
            "reserved": lambda n: machine.reserved(at, run, 0, n),
            "released": lambda n: machine.released(at, run, n),
            "reconciled": lambda n: machine.reconciled(at, run, n),
            "replan": lambda n: machine.planned_anew(at, run, n),
        }
        for moment in range(1, 100):
            claims = dict(at.claims)
            steps[step](moment)
            machine.ledger_is_model()
            if fuse.committed:
                break
            at.claims = claims  # it told somebody else, who goes on
        assert moment > 3
        machine.teardown()


def test_the_ledger_does_what_its_model_does_whatever_dies_where(url: str) -> None:
    fuse, tries = Fuse(), int(os.environ.get("NESTEGG_LEDGER_TRIES", 8 if url.startswith("sqlite") else 4))
    chosen = settings(
        examples(tries),
        stateful_step_count=25,
        phases=(Phase.reuse, Phase.generate),  # to shrink a failure takes minutes
        suppress_health_check=list(HealthCheck),
    )
    with fuse.laid():
        run_state_machine_as_test(partial(LedgerMachine, url, fuse), settings=chosen)  # type: ignore[arg-type]
