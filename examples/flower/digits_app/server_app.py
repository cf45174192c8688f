"""The server: a plan for three groups, and the strategy that carries it."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

import nestegg
from digits_app import task
from nestegg import Budget, Group
from nestegg.flower import Enrolling, PlannedStrategy, Sharing

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train by a plan. Budgets this large are a demonstration: four clients are no crowd to hide in."""
    config = context.run_config
    quarter = int(config["clients"]) // 4
    groups = [
        Group("strict", 2 * quarter, Budget(20.0), saving_rate=0.5),
        Group("middle", quarter, Budget(40.0), saving_rate=0.6),
        Group("open", quarter, Budget(80.0), saving_rate=0.7),
    ]
    plan = nestegg.plan(groups, rounds=int(config["rounds"]), spending_rate=0.9, clip_norm=1.0)
    enrolling, sharing = Enrolling(identity=str(config["identity"])), Sharing("flat")
    strategy = PlannedStrategy(plan, str(config["folder"]), enrolling=enrolling, sharing=sharing)
    model = task.make_model()

    def evaluate(round_: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": task.accuracy(model)})

    strategy.start(grid, ArrayRecord(model.state_dict()), evaluate_fn=evaluate)
