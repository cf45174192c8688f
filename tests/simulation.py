"""The same federation in nestegg's simulator and on Flower's simulation engine: `python -m tests.simulation FOLDER`.

With `features` behind it, on features of the images, which each Flower client makes of its own. With `balanced`, by the
balanced loss, where clients have few labels. Writes both models, as vectors, into the folder. It is a
program of its own since Ray and Flower change a process.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits
from torch import Tensor, nn

import nestegg
from nestegg import Budget, Federation, Group, LocalTraining, Mechanics, Performance
from nestegg.data import oriented_gradients
from nestegg.flower import Enrolling, OwnAccount, PlannedStrategy, Sharing, private_client_app
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.training.local import batches, default_loss
from nestegg.training.losses import loss_for

SEED, ROUNDS, CLIENTS = 3, 3, 8
EPSILONS = (20.0,) * 4 + (40.0,) * 2 + (80.0,) * 2
HAS_FEW_LABELS = "balanced" in sys.argv
LOSS = nestegg.balanced if HAS_FEW_LABELS else default_loss
TRAINING = LocalTraining(epochs=2, batch_size=16, learning_rate=0.2, loss=LOSS)
PLAN = nestegg.plan(
    [
        Group("strict", 4, Budget(20.0), saving_rate=0.5),
        Group("middle", 2, Budget(40.0), saving_rate=0.6),
        Group("open", 2, Budget(80.0), saving_rate=0.7),
    ],
    rounds=ROUNDS,
    clip_norm=5.0,
)
RANDOMNESS = Randomness(SEED, reproducible=True)


def make_model(has_features: bool) -> nn.Module:
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Flatten(), nn.Linear(144 if has_features else 64, 16), nn.ReLU(), nn.Linear(16, 10))


def data_of(client: int) -> tuple[Tensor, Tensor]:
    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy((x / 16.0).astype(np.float32)).reshape(-1, 1, 8, 8)
    order = np.argsort(y, kind="stable")
    own = np.array_split(order, CLIENTS)[client] if HAS_FEW_LABELS else np.arange(client, len(y), CLIENTS)
    return images[own], torch.from_numpy(y)[own]


def noise(context: Context, round_: int) -> np.random.Generator:
    return RANDOMNESS.stream(Purpose.NOISE, round_, client=int(context.node_config["partition-id"]))


def make_client_app(folder: str, has_features: bool) -> ClientApp:
    def account(context: Context) -> OwnAccount:
        number = int(context.node_config["partition-id"])
        return OwnAccount(Path(folder, "accounts", str(number)), Budget(EPSILONS[number]))

    app = private_client_app(account, noise=noise)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, client = make_model(has_features), int(context.node_config["partition-id"])
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        x, y = data_of(client)
        x = oriented_gradients(x) if has_features else x
        rate, loss = TRAINING.rate(round_, ROUNDS), loss_for(LOSS, y)
        optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=TRAINING.momentum)
        for rows in batches(len(y), TRAINING, RANDOMNESS, round_, client):
            optimiser.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimiser.step()
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict())}), reply_to=message)

    return app


def main(folder: str, has_features: bool) -> None:
    data: Any = [data_of(client) for client in range(CLIENTS)]
    data = nestegg.with_features(data, oriented_gradients) if has_features else data
    mechanics, performance = Mechanics(randomness=RANDOMNESS), Performance("loop", workers=1)
    model, _ = nestegg.train(
        Federation(PLAN, make_model(has_features), data, local=TRAINING, mechanics=mechanics, performance=performance)
    )
    np.save(Path(folder, "simulator.npy"), nn.utils.parameters_to_vector(model.parameters()).detach().numpy())

    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = PlannedStrategy(
            PLAN,
            Path(folder, "run"),
            enrolling=Enrolling(identity="partition-id"),
            sharing=Sharing(clip_scale=TRAINING.rates(ROUNDS)),
            randomness=RANDOMNESS,
        )
        result = strategy.start(grid, ArrayRecord(make_model(has_features).state_dict()))
        vector = np.concatenate([array.numpy().ravel() for array in result.arrays.values()])
        np.save(Path(folder, "flower.npy"), vector)

    ray = {"num_cpus": 2, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    ray |= {"object_store_memory": 2**28, "log_to_driver": False, "logging_level": "error"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:  # names of sockets must be short
        backend = {"init_args": ray | {"_temp_dir": short}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server_app, make_client_app(folder, has_features), CLIENTS, backend_config=backend)  # type: ignore[arg-type]


if __name__ == "__main__":
    logging.getLogger("flwr").setLevel(os.environ.get("LEVEL", "INFO"))
    main(sys.argv[1], has_features=sys.argv[2:] == ["features"])
