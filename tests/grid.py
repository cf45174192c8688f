"""Models, plans, accounts and apps for Flower in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from nestegg import Budget, Group, Plan, plan
from nestegg.flower.guard import OwnAccount
from nestegg.flower.in_process import identify
from nestegg.flower.mod import AccountOf, private_client_app

identify()  # tests make messages of their own

BUDGETS = {number: (2.0, 2.0, 5.0, 5.0, 10.0, 10.0)[number] for number in range(6)}
STEP = 0.5  # by which every client of these tests moves every weight


def small_plan(rounds: int = 4, factor: float = 1.0, **options: object) -> Plan:
    """Six clients in three groups, all of them sampled in every round; a large factor on ε is little noise."""
    budgets = zip(("strict", "middle", "open"), (2.0, 5.0, 10.0), strict=True)
    groups = [Group(name, 2, Budget(epsilon * factor)) for name, epsilon in budgets]
    chosen: dict[str, Any] = {"method": "idp-fedavg", "accountant": "rdp", **options}
    return plan(groups, rounds, spending_rate=1.0, clip_norm=1.0, **chosen)


def accounts_in(folder: Path, factor: float = 1.0) -> AccountOf:
    """An account for every partition."""

    def account(context: Context) -> OwnAccount:
        number = int(context.node_config["partition-id"])
        return OwnAccount(folder / str(number), Budget(BUDGETS[number] * factor))

    return account


def model(size: int = 8) -> ArrayRecord:
    """A model with two layers, and a counter that is no weight."""
    return ArrayRecord(
        {
            "a.weight": Array(np.zeros((size, size), np.float32)),
            "a.bias": Array(np.zeros(size, np.float32)),
            "b.weight": Array(np.zeros(size, np.float32)),
            "b.count": Array(np.array(3, np.int64)),
        }
    )


def moved(arrays: ArrayRecord, step: float = STEP) -> ArrayRecord:
    """What training gives in these tests."""
    return ArrayRecord(
        {
            name: Array(np.asarray(array.numpy() + (step if array.dtype == "float32" else 1)))
            for name, array in arrays.items()
        }
    )


def client_app(folder: Path, train: Callable[[ArrayRecord], ArrayRecord] = moved, factor: float = 1.0) -> ClientApp:
    """An app whose training is a function of arrays."""
    app = private_client_app(accounts_in(folder, factor))

    @app.train()
    def go(message: Message, context: Context) -> Message:
        arrays = train(message.content.array_records["arrays"])
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return app
