"""Clients that change nothing, and one that fails in round 2."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict

from fault_app import EPSILONS
from nestegg import Budget
from nestegg.flower import OwnAccount, private_client_app


def account(context: Context) -> OwnAccount:
    """An account a run, so that one federation can try many faults."""
    number = int(context.node_config["partition-id"])
    return OwnAccount(Path(str(context.run_config["folder"]), f"account{number}"), Budget(EPSILONS[number]))


app = private_client_app(account)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Reply with what came, or with what the fault says."""
    arrays, config = message.content.array_records["arrays"], message.content.config_records["config"]
    number, round_ = int(context.node_config["partition-id"]), int(str(config["server-round"]))
    folder, fault = Path(str(context.run_config["folder"])), str(context.run_config["client-fault"])
    (folder / f"working{number}-{round_}").touch()
    if number == 0 and round_ == 2:
        if fault == "nan":
            arrays = ArrayRecord({name: Array(array.numpy() * np.nan) for name, array in arrays.items()})
        elif fault == "huge":
            arrays = ArrayRecord({name: Array(array.numpy() + 1e30) for name, array in arrays.items()})
        elif fault == "shape":
            arrays = ArrayRecord({name: Array(array.numpy()[1:]) for name, array in arrays.items()})
        elif fault == "raise":
            raise RuntimeError("training fails")
        elif fault in ("late", "die-during"):
            time.sleep(60)
    return Message(RecordDict({"arrays": arrays}), reply_to=message)
