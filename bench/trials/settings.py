"""What is trained: the rows of "When to spend" that are a softmax regression, on validation data."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

from bench.trials.idea import Idea
from nestegg.configuration.config import Config, FederationTable, Model, Privacy, changed
from nestegg.configuration.own import load_data
from nestegg.configuration.participants import make_plan
from nestegg.data import Dataset
from nestegg.errors import InputError
from nestegg.experiments.cells import hash_of
from nestegg.experiments.definition import Experiment, load
from nestegg.experiments.scales import configured
from nestegg.planning import Plan

COLUMN = "optimal-full"  # the computed schedule with measured memory, everybody in every round
PAPER = {  # those that train fastest first
    "adult": "adult-softmax",
    "mnist": "mnist-features",
    "fashion-mnist": "fmnist-features",
    "cifar10": "cifar10-features",
}
STRICT = {dataset: f"{row}-strict" for dataset, row in PAPER.items()}
SEEDS = (100, 101, 102)
FRESH = tuple(range(103, 113))  # for what has passed with the others
REPORTED = tuple(range(10))  # on test data, for opponents that came close
_DIGESTS: dict[tuple[object, ...], str] = {}  # tables ask for the same ones often


@cache
def _experiment() -> Experiment:
    return load("when-to-spend")


def config_of(row: str, idea: Idea, seed: int, data: Path | None = None) -> Config:
    """Return a row's configuration with the settings of an idea.

    Accuracy is measured on training data that no client has; of reported seeds on test data.
    """
    experiment = _experiment()
    (column,) = (one for one in experiment.columns if one.name == COLUMN)
    found = [one for one in experiment.rows if one.name == row]
    if not found:
        raise InputError(f"row = {row!r} must be one of {', '.join([*PAPER.values(), *STRICT.values()])}.")
    setting = experiment.cell(found[0], column)
    setting = setting.but(
        tested_on="test" if seed in REPORTED else "validation",
        learning_rate=setting.learning_rate * idea.rate,
        clip_norm=setting.clip_norm * idea.clip,
    )
    config = changed(configured(setting, "full", seed), "training", workers=1, **idea.training)
    return changed(config, "federation", data=None if data is None else str(data.resolve()))


def digest_of(row: str, idea: Idea) -> str:
    """Return the hash of a row's configuration with the settings of an idea, without its seed."""
    key = row, idea.rate, idea.clip, *idea.training.items()
    if key not in _DIGESTS:
        _DIGESTS[key] = hash_of(config_of(row, idea, SEEDS[0]))
    return _DIGESTS[key]


def plan_of(config: Config) -> Plan:
    """Return the plan of a configuration; seeds share theirs."""
    return _planned(changed(changed(config, "training", seed=0), "federation", data=None).model_dump_json())


@lru_cache(maxsize=64)
def _planned(config: str) -> Plan:
    return make_plan(Config.model_validate_json(config))


def data_of(config: Config) -> Dataset:
    """Return what a configuration trains on; trials of one dataset share it, for features take longer than some."""
    return _loaded(config.federation.model_dump_json(), config.model.model_dump_json())


@lru_cache(maxsize=1)
def _loaded(federation: str, model: str) -> Dataset:
    tables = FederationTable.model_validate_json(federation), Model.model_validate_json(model)
    data = load_data(Config(federation=tables[0], model=tables[1], privacy=Privacy()))
    assert isinstance(data, Dataset), "the rows divide data among clients"
    return data
