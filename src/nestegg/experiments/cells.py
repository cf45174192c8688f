"""Cells: one training run of an experiment each, kept as a small file that is named after its configuration."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from nestegg.configuration.config import Config, FederationTable, Model, Privacy, changed, to_toml
from nestegg.configuration.identity import config_digest
from nestegg.configuration.own import OwnClients, load_data
from nestegg.configuration.participants import make_plan
from nestegg.data import Dataset
from nestegg.errors import InputError
from nestegg.files import make_folder, write_atomically
from nestegg.planning import Plan
from nestegg.runs import Simulation
from nestegg.schema import Section, read
from nestegg.training import Evaluation
from nestegg.training.local import Samples

_HASH = 12  # digits of a hash that are shown, and name a file
CURVE_SAMPLES = 1000  # of the test data, for every round but the last, which is measured on all of it
LOSS_SAMPLES = 4  # of every client, for the mean training loss
FORMAT: Literal[2] = 2  # of cells that are trained now
FORMATS = {2: "noise on the lattice", 1: "noise in floating point, before the lattice"}  # the newest first
_FIRST = {"adult": 2}  # format from which on cells of a dataset count: before, its inputs were scaled by its own data


class Cell(Section):
    """What one run gave.

    Attributes:
        format: of this file, and of all that makes its numbers (see FORMATS): a change of what a cell measures counts
            it up.
        hash: of the configuration without its seed.
        seed: of data partition, model, cohorts and noise.
        config: all of it.
        accuracy: in percent, after every round; on all test data after the last.
        training_loss: of the global model on clients' data, after every round: a simulation may know it.
        epsilon: budget of every group.
        epsilon_spent: of it, in all rounds, by the plan's own accountant.
        seconds: how long it took.
        digest: of all the rest, so that a damaged file is noticed.
    """

    format: Literal[1, 2]
    hash: str
    seed: int
    config: dict[str, Any]
    accuracy: list[float]
    training_loss: list[float | None]
    epsilon: list[float]
    epsilon_spent: list[float | None]
    seconds: float
    digest: str

    @property
    def final(self) -> float:
        """Accuracy after the last round."""
        return self.accuracy[-1]


class Store:
    """A folder of cells; one configuration may have a cell of each format."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cells"

    def path(self, config: Config, form: int = FORMAT) -> Path:
        """Return where the cell of a configuration lies, or will."""
        return self.folder / _file_name(hash_of(config), config.training.seed, form)

    def find(self, config: Config) -> dict[int, Cell]:
        """Return the cells of a configuration by format, the newest first.

        What is damaged, not what its name says, or of a format that no longer counts for the dataset is left out.
        """
        first, digest = _FIRST.get(config.federation.dataset, 1), hash_of(config)
        found = {form: self._read(config, digest, form) for form in FORMATS if form >= first}
        return {form: cell for form, cell in found.items() if cell is not None}

    def get(self, config: Config) -> Cell | None:
        """Return the newest cell of a configuration; none if there is none that counts."""
        return next(iter(self.find(config).values()), None)

    def count(self, configs: Sequence[Config]) -> int:
        """Return how many of these configurations have a cell."""
        return sum(self.get(config) is not None for config in configs)

    def _read(self, config: Config, digest: str, form: int) -> Cell | None:
        path = self.folder / _file_name(digest, config.training.seed, form)
        try:
            cell = read(Cell, json.loads(path.read_bytes()), path.name)
        except (OSError, ValueError, RecursionError, InputError):
            return None
        named = (form, digest, config.training.seed, _digest(cell))
        known = (cell.format, cell.hash, cell.seed, cell.digest) == named
        return cell if known and len(cell.accuracy) == config.training.rounds else None

    def prepare(self) -> None:
        """Make the folder."""
        make_folder("--results", self.folder)

    def put(self, cell: Cell) -> None:
        """Keep a cell: whole, or not at all."""
        self.prepare()
        content = json.dumps(cell.model_dump(), allow_nan=False)
        write_atomically(self.folder / _file_name(cell.hash, cell.seed, cell.format), content + "\n")


def _file_name(digest: str, seed: int, form: int) -> str:
    """Return the name of a cell's file; those of format 1 do not say it."""
    return f"{digest}-{seed}.json" if form == 1 else f"{digest}-{seed}.{form}.json"


def hash_of(config: Config) -> str:
    """Of all that a cell's result depends on, but for the seed."""
    return config_digest(changed(config, "training", seed=0))[:_HASH]


def measure(config: Config) -> Cell:
    """Train one cell."""
    started = time.perf_counter()
    plan = plan_of(config)
    task = Simulation(config, plan, _loaded(config.federation.model_dump_json(), config.model.features))
    accuracy, losses = _train(task, plan)
    content = to_toml(config)
    content.pop("ledger")
    content["federation"].pop("data", None)
    cell = Cell(
        format=FORMAT,
        hash=hash_of(config),
        seed=config.training.seed,
        config=content,
        accuracy=accuracy,
        training_loss=losses,
        epsilon=[row.group.budget.epsilon for row in plan.groups],
        epsilon_spent=[_finite(row.epsilon_spent[-1], 4) for row in plan.groups],
        seconds=round(time.perf_counter() - started, 1),
        digest="",
    )
    return cell.model_copy(update={"digest": _digest(cell)})


def plan_of(config: Config) -> Plan:
    """The plan of a cell; seeds share theirs, for some plans take long."""
    return _planned(changed(changed(config, "training", seed=0), "federation", data=None).model_dump_json())


@lru_cache(maxsize=8)
def _loaded(federation: str, features: str | None) -> Dataset | OwnClients:
    """What a cell trains on; cells of one process share it, for features take longer than some trainings."""
    table = FederationTable.model_validate_json(federation)
    return load_data(Config(federation=table, model=Model(features=features), privacy=Privacy()))


@lru_cache(maxsize=64)
def _planned(config: str) -> Plan:
    return make_plan(Config.model_validate_json(config))


def _train(task: Simulation, plan: Plan) -> tuple[list[float], list[float | None]]:
    """Test accuracy and mean training loss after every round."""
    federation, (x, y) = task.federation, (task.dataset.test_x, task.dataset.test_y)
    few = slice(None, None, max(1, len(y) // CURVE_SAMPLES))
    test, last, clients = Evaluation(x[few], y[few]), Evaluation(x, y), Evaluation(*_some_of_each(task))
    state = federation.start()
    accuracy: list[float] = []
    losses: list[float | None] = []
    while state.round < plan.rounds:
        state, _ = federation.round(state)
        right = federation.measured(state, test if state.round < plan.rounds else last).accuracy
        accuracy.append(round(right or 0.0, 3))
        losses.append(_finite(federation.measured(state, clients).loss, 5))
    return accuracy, losses


def _some_of_each(task: Simulation) -> Samples:
    """A few samples of every client, evenly spread."""
    chosen = torch.cat([part[:: math.ceil(len(part) / LOSS_SAMPLES)] for part in task.parts])
    return task.dataset.train_x[chosen], task.dataset.train_y[chosen]


def _digest(cell: Cell) -> str:
    content = cell.model_dump(exclude={"digest"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _finite(value: float | None, digits: int) -> float | None:
    return round(value, digits) if value is not None and math.isfinite(value) else None
