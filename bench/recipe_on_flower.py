"""A recipe in nestegg's simulator and on Flower, and how far the two models are apart.

    python -m bench.recipe_on_flower RECIPE [--data DIR] [--rounds N] [--engine in-process|ray]

RECIPE is a configuration with `reproducible = true`, such as examples/recipes/digits.toml. On Flower every node has its
own account and its own samples, makes its own features and trains by code of its own, as a user's would: SGD of torch.
Cohorts, noise and the order of samples follow from the seed in both, so the models agree but for rounding: with the
simulator's loop, which rounds as torch does, and with the engine that it takes by itself. Where the learning rate is
large, local training makes much of a rounding, and the second difference is larger than the first.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor, nn

from nestegg.configuration.config import Config, changed, load_config
from nestegg.configuration.own import load_features
from nestegg.data.features import extracted
from nestegg.errors import InputError
from nestegg.flower import Enrolling, OwnAccount, PlannedStrategy, Sharing, private_client_app, wire
from nestegg.flower.in_process import LocalGrid
from nestegg.flower.mod import PARTITION
from nestegg.mechanism.randomness import Purpose
from nestegg.models import make_model
from nestegg.runs.configured import new_simulation
from nestegg.training import Federation
from nestegg.training.evaluation import measured
from nestegg.training.holding import HoldingBack
from nestegg.training.local import Samples, batches
from nestegg.training.losses import loss_for

ENGINES = ("in-process", "ray")
RAY = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux, too: listen on loopback only
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class Where(NamedTuple):
    """A configuration's file, and the folder of its data."""

    file: str
    data: str | None = None

    def config(self) -> Config:
        """Return the configuration, which must say that its noise follows from its seed."""
        config = load_config(Path(self.file))
        if not config.training.reproducible:
            raise InputError("training.reproducible = false must be true: secret noise is another in every run.")
        return config if self.data is None else changed(config, "federation", data=self.data)


class Nodes:
    """All nodes of a process: of everybody's inputs, each touches its own."""

    def __init__(self, config: Config) -> None:
        plain, _ = new_simulation(changed(config, "model", features=None), "nodes")
        self.federation, self.features = plain.federation, load_features(config)
        shape = self._featured(plain.dataset.test_x[:1]).shape[1:]
        name = plain.config.model.name or ""
        self.model = make_model(name, shape, plain.dataset.classes, config.training.seed, config.code)
        self._own: dict[int, tuple[Samples, Samples | None]] = {}

    def train(self, client: int, arrays: ArrayRecord, round_: int) -> RecordDict:
        """Return what a client's training code replies: its model, and how good the one before was on its own."""
        local, randomness = self.federation.local, self.federation.randomness
        (x, y), held = self._samples(client)
        self.model.load_state_dict(arrays.to_torch_state_dict(), strict=False)  # what is fixed it has
        content = RecordDict()
        if held is not None and len(held[1]):
            found = measured(self.model, held, local.loss)
            right = float("nan") if found.accuracy is None else found.accuracy / 100.0
            content[wire.HELD_BACK] = MetricRecord({"accuracy": right, "loss": found.loss})
        rate, loss = self.federation.rates[round_ - 1], loss_for(local.loss, y)
        optimiser = torch.optim.SGD(self.model.train().parameters(), lr=rate, momentum=local.momentum)
        for rows in batches(len(y), local, randomness, round_, client):
            optimiser.zero_grad()
            loss(self.model(x[rows]), y[rows]).backward()
            optimiser.step()
        content["arrays"] = trained_arrays(self.model)
        return content

    def _samples(self, client: int) -> tuple[Samples, Samples | None]:
        """What a client trains on and what it holds back, with features that it makes once."""
        if client not in self._own:
            clients = self.federation.clients
            parts = [clients.samples(client)]
            parts += [clients.held(client)] if isinstance(clients, HoldingBack) else []
            made = [(self._featured(x), y) for x, y in parts]
            self._own[client] = made[0], made[1] if len(made) > 1 else None
        return self._own[client]

    def _featured(self, inputs: Tensor) -> Tensor:
        return inputs if self.features is None or not len(inputs) else extracted(self.features, inputs)


def trained_arrays(model: nn.Module) -> ArrayRecord:
    """Return what is trained of a model: whatever is sent gets noise, and what is fixed follows from the seed."""
    trained = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    return ArrayRecord(OrderedDict(trained))


@cache
def nodes_of(where: Where) -> Nodes:
    """Return the nodes of this process: those of Ray answer many messages in one."""
    return Nodes(where.config())


def client_app(where: Where, federation: Federation, folder: Path) -> ClientApp:
    """Return the app of all nodes: node i is the i-th client of the plan, with the budget of its group."""
    budgets = [row.group.budget for row in federation.plan.groups for _ in range(row.group.clients)]
    randomness = federation.randomness

    def account(context: Context) -> OwnAccount:
        number = int(context.node_config[PARTITION])
        return OwnAccount(folder / "accounts" / str(number), budgets[number])

    def noise(context: Context, round_: int) -> np.random.Generator:
        return randomness.stream(Purpose.NOISE, round_, client=int(context.node_config[PARTITION]))

    app = private_client_app(account, noise=noise)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        arrays, client = wire.single_arrays(message.content), int(context.node_config[PARTITION])
        return Message(nodes_of(where).train(client, arrays, round_), reply_to=message)

    return app


def strategy_of(federation: Federation, folder: Path) -> PlannedStrategy:
    """Return the strategy that carries out what a configuration says."""
    mechanics = federation.mechanics
    scale = federation.rates if mechanics.clip_unit == "gradient" else None
    return PlannedStrategy(
        federation.plan,
        folder / "run",
        sharing=Sharing(mechanics.clipping, mechanics.colluders, scale, federation.side),
        enrolling=Enrolling(identity="partition-id", timeout=3600.0),
        randomness=federation.randomness,
    )


class Trained(NamedTuple):
    """A model as a vector, and its accuracy in percent."""

    weights: Tensor
    accuracy: float | None

    def beside(self, other: Trained) -> float:
        """Return the largest difference of a weight."""
        return float((self.weights - other.weights).abs().max())


class Outcome(NamedTuple):
    """What came of the same rounds on Flower, in the simulator by its loop, and by the engine it takes by itself."""

    rounds: int
    flower: Trained
    loop: Trained
    usual: Trained


def compare(where: Where, folder: Path, *, rounds: int | None = None, engine: str = ENGINES[0]) -> Outcome:
    """Train a configuration in the simulator and on Flower, whose run and accounts are kept in a folder."""
    config = changed(where.config(), "training", workers=1)  # others may be at work on this machine
    loop, usual = (
        new_simulation(one, "recipe")[0].federation for one in (changed(config, "training", engine="loop"), config)
    )
    last = rounds or loop.plan.rounds
    theirs = _on_flower(where, loop, folder, last, is_ray=engine == "ray")
    return Outcome(last, _trained(loop, theirs), *(_trained(one, _simulated(one, last)) for one in (loop, usual)))


def _simulated(federation: Federation, last: int) -> nn.Module:
    state = federation.start()
    while state.round < last:
        state, _ = federation.round(state)
    return federation.model_at(state)


def _trained(federation: Federation, model: nn.Module) -> Trained:
    found = federation.test.measured(model, federation.local.loss).accuracy if federation.test else None
    return Trained(federation.layout.flatten(model).detach(), found)


def _on_flower(where: Where, federation: Federation, folder: Path, last: int, *, is_ray: bool) -> nn.Module:
    model = federation.model_at(federation.start())
    app, strategy = client_app(where, federation, folder), strategy_of(federation, folder)

    def serve(grid: Grid) -> None:
        result = strategy.start(grid, trained_arrays(model), num_rounds=last)
        model.load_state_dict(result.arrays.to_torch_state_dict(), strict=False)

    if is_ray:
        _on_ray(serve, app, federation.plan.clients)
    else:
        serve(LocalGrid(app, federation.plan.clients, keys=False))
    return model


def _on_ray(serve: Callable[[Grid], None], app: ClientApp, nodes: int) -> None:
    """Serve on Flower's simulation engine."""
    os.environ.update(RAY)
    from flwr.simulation import run_simulation

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid)

    ray = {"num_cpus": 2, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    ray |= {"object_store_memory": 2**28, "log_to_driver": False, "logging_level": "error"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:  # names of sockets must be short
        backend = {"init_args": ray | {"_temp_dir": short}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server, app, nodes, backend_config=backend)  # type: ignore[arg-type]


def main() -> None:
    """Compare, and say how far the models are apart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", type=Path, help="its file")
    parser.add_argument("--data", help="folder of the data")
    parser.add_argument("--rounds", type=int, help="how many of them; by default all")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    asked = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as place:
        where = Where(str(asked.recipe.resolve()), asked.data)
        found = compare(where, Path(place), rounds=asked.rounds, engine=asked.engine)
    print(f"{asked.recipe.stem}, {asked.engine}, {found.rounds} rounds; accuracy {_shown(found.flower)}")
    for name, one in (("loop", found.loop), ("usual engine", found.usual)):
        print(f"{name}: largest difference {found.flower.beside(one):.1e}, accuracy {_shown(one)}")


def _shown(one: Trained) -> str:
    return "–" if one.accuracy is None else f"{one.accuracy:.2f} %"


if __name__ == "__main__":
    from bench.recipe_on_flower import main as importable  # nodes of Ray find what belongs to a module

    importable()
