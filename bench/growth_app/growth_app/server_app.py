"""The strategy as in production, with a ledger of its own on PostgreSQL."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from growth_app import make_plan
from nestegg.flower import PlannedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train a vector of zeros."""
    config = context.run_config
    plan = make_plan(int(config["clients"]), int(config["rounds"]), float(config["rate"]))
    arrays = ArrayRecord({"a.weight": Array(np.zeros(int(config["parameters"]), np.float32))})
    strategy = PlannedStrategy(plan, str(config["folder"]), ledger=str(config["ledger"]) or None)
    strategy.start(grid, arrays, timeout=float(config["timeout"]))
