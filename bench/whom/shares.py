"""What final models recognise, label by label and client by client; trained once and kept in results/whom.json.

The runs are those of `what-privacy-costs`, columns FedAvg and Recipe, with its ten seeds. Of each final model the share
of every label's test samples that it recognises is kept. A client's own accuracy is the mean of these shares, weighted
by the labels that the client has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from nestegg.configuration.config import Config, changed
from nestegg.configuration.own import load_data
from nestegg.data import Dataset
from nestegg.experiments.cells import hash_of, plan_of
from nestegg.experiments.definition import Experiment, Row, load
from nestegg.experiments.scales import configured
from nestegg.files import write_atomically
from nestegg.runs import Simulation
from nestegg.schema import Section, read
from nestegg.training import train
from nestegg.training.evaluation import predictions

EXPERIMENT = "what-privacy-costs"
WITHOUT, WITH = "fedavg", "recipe"


class Share(Section):
    """What a final model recognises, in percent.

    Attributes:
        hash: of its configuration without the seed.
        labels: of each label's test samples.
        clients: every client's own accuracy, in the order of the plan.
    """

    hash: str
    labels: list[float]
    clients: list[float]


class Shares(Section):
    """All that was measured: by row, column and seed."""

    format: Literal[1] = 1
    shares: dict[str, dict[str, dict[str, Share]]] = Field(default_factory=dict)


def kept_shares(file: Path) -> Shares:
    """Return what a file has; nothing if there is none."""
    return read(Shares, json.loads(file.read_bytes()), file.name) if file.exists() else Shares()


def complete(file: Path, folder: Path) -> None:
    """Train what is missing in a file, with the datasets of a folder; each row is kept as it comes."""
    experiment, kept = load(EXPERIMENT), kept_shares(file)
    for row in experiment.rows:
        data: Dataset | None = None
        for name in (WITHOUT, WITH):
            found = kept.shares.setdefault(row.name, {}).setdefault(name, {})
            for seed in experiment.seeds:
                config = config_of(experiment, row, name, seed)
                if str(seed) not in found or found[str(seed)].hash != hash_of(config):
                    data = _data_of(config, folder) if data is None else data
                    found[str(seed)] = measured_share(config, data)
        write_atomically(file, json.dumps(kept.model_dump()) + "\n")


def measured_share(config: Config, data: Dataset) -> Share:
    """Train by a configuration, and measure the final model by label and by client."""
    task = Simulation(config, plan_of(config), data)
    model, _ = train(task.federation)
    with torch.no_grad():
        right = (predictions(model(data.test_x)) == data.test_y).numpy()
    labels = 100.0 * np.bincount(data.test_y, right, data.classes) / _counts(data, data.test_y)
    own = [float(_counts(data, data.train_y[part]) @ labels) / len(part) for part in task.parts]
    return Share(hash=hash_of(config), labels=_rounded(labels), clients=_rounded(own))


def config_of(experiment: Experiment, row: Row, column: str, seed: int) -> Config:
    """Return the configuration of a run."""
    found = next(one for one in experiment.columns if one.name == column)
    return configured(experiment.cell(row, found), "full", seed)


def _data_of(config: Config, folder: Path) -> Dataset:
    data = load_data(changed(config, "federation", data=str(folder)))
    assert isinstance(data, Dataset), "the paper's datasets are divided among clients"
    return data


def _counts(data: Dataset, labels: torch.Tensor) -> NDArray[np.int64]:
    return np.bincount(labels.numpy(), minlength=data.classes)


def _rounded(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    return [round(float(value), 3) for value in values]
