"""A server that stops for good at one step of round 2, or changes its mind about the plan."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fault_app import SIZE, make_plan
from nestegg.flower import PlannedStrategy
from nestegg.flower import strategy as module
from nestegg.flower.session import Session
from nestegg.flower.terms import Order, Terms
from nestegg.ledger import RunBooks
from nestegg.runs.folder import StateFolder

app = ServerApp()


def stop_at(step: str, before: bool, marker: Path) -> None:
    """Stop at the second call of a step: leave a marker, and wait to be killed."""
    owner = {"exchange": module, "reserve": Session, "release": RunBooks}.get(step, StateFolder)
    real, calls = getattr(owner, step), 0

    def stopping(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        result = None if before and calls == 2 else real(*arguments, **options)
        if calls == 2:
            if step == "exchange" and result is not None:
                list(result)
            marker.touch()
            time.sleep(600)
        return result

    setattr(owner, step, stopping)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train nothing, so that what is released is noise."""
    config = context.run_config
    folder, fault = Path(str(config["folder"])), str(config["server-fault"])
    plan = make_plan(int(config["rounds"]))
    if fault == "swap":  # every order of round 2 has half the noise that was agreed on
        real = Terms.order

        def halved(self: Terms, group: str, round_: int, learnt: float = 0.0) -> Order:
            order = real(self, group, round_, learnt)
            return order.model_copy(update={"noise_std": order.noise_std / 2}) if round_ == 2 else order

        Terms.order = halved  # type: ignore[method-assign]
    elif fault:
        step, _, when = fault.rpartition("-")
        stop_at(step, when == "before", folder / "stopped")
    arrays = ArrayRecord({"a.weight": Array(np.zeros((SIZE, SIZE), np.float32))})
    PlannedStrategy(plan, folder / "run").start(grid, arrays, timeout=float(config["timeout"]))
