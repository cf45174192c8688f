"""A client: its training code as ever, in an app that keeps it private."""

import os
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message, RecordDict

from digits_app import task
from nestegg import Budget
from nestegg.flower import OwnAccount, account_of_node, private_client_app


def account(context: Context) -> OwnAccount:
    """The node's own account. A simulation, whose nodes have none, gives everybody one in the folder ACCOUNTS."""
    if "ACCOUNTS" not in os.environ:
        return account_of_node(context)
    number = int(context.node_config["partition-id"])
    return OwnAccount(Path(os.environ["ACCOUNTS"], str(number)), Budget((20.0, 20.0, 40.0, 80.0)[number % 4]))


app = private_client_app(account)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of the message on this client's digits."""
    model = task.make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    task.train(model, int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict())}), reply_to=message)
