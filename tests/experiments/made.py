"""Cells and outcomes that tests of experiments make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nestegg.configuration.config import Config
from nestegg.experiments import cells as cells_module
from nestegg.experiments.cells import Cell, Store, hash_of
from nestegg.experiments.definition import load
from nestegg.experiments.outcomes import Number, Outcome, outcome_of
from nestegg.experiments.scales import configured


def config_of(name: str, row: int = 0, column: str = "idp-fedavg", scale: str = "smoke", seed: int = 0) -> Config:
    experiment = load(name)
    wanted = next(one for one in experiment.columns if one.name == column)
    return configured(experiment.cell(experiment.rows[row], wanted), scale, seed)


def remade(cell: Cell, **values: Any) -> Cell:
    """A sound cell that differs in these values."""
    made = cell.model_copy(update={**values, "digest": ""})
    return made.model_copy(update={"digest": cells_module._digest(made)})


def entry(paper: float | None, *finals: float, asked: int | None = None) -> Number:
    made = tuple(
        Cell(format=1, hash="h", seed=seed, config={}, accuracy=[final], training_loss=[None], epsilon=[],
             epsilon_spent=[], seconds=0.0, digest="")
        for seed, final in enumerate(finals)
    )  # fmt: skip
    return Number(paper, "h", made, len(finals) if asked is None else asked)


def outcome_with(name: str, folder: Path, like: Cell, finals: dict[str, tuple[float, ...]]) -> Outcome:
    """An experiment of which these cells of the first row are there, with these accuracies for seeds 0, 1, …."""
    experiment, store = load(name), Store(folder)
    for column in experiment.columns:
        for seed, final in enumerate(finals.get(column.name, ())):
            config = configured(experiment.cell(experiment.rows[0], column), "smoke", seed)
            accuracy = [final - 20, final - 10, final]
            store.put(remade(like, hash=hash_of(config), seed=seed, accuracy=accuracy))
    return outcome_of(name, experiment, "smoke", store)
