"""docs/results.md says what the committed cells say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nestegg.experiments.cells import Cell, Store
from nestegg.experiments.definition import Hyperparameters, Row, chosen_clip_norms, load, names, tunings
from nestegg.experiments.outcomes import configs_of, outcome_of
from nestegg.experiments.pages import PICTURES, refreshed
from nestegg.experiments.reproduction import Reproduction, chosen_experiments
from nestegg.experiments.views import charts
from nestegg.schema import read

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
CELLS = sorted((ROOT / "results" / "cells").glob("*.json"))


@pytest.mark.slow
def test_the_page_is_made_from_the_committed_cells() -> None:
    text = PAGE.read_text()
    outcomes = Reproduction(chosen_experiments("all"), "cpu", Store(ROOT / "results")).outcomes()
    drawn = {path.stem for path in (PAGE.parent / PICTURES).glob("*.svg")}
    assert drawn == {outcome.name for outcome in outcomes if charts(outcome)}
    assert refreshed(text, outcomes, drawn) == text


def test_every_committed_cell_is_whole_and_belongs_to_an_experiment() -> None:
    store, known = Store(ROOT / "results"), set()
    for name in (*names(), *tunings()):
        experiment = load(name)
        for configs in configs_of(experiment, experiment.scale_for("cpu")).values():
            known |= {store.path(config, form) for config in configs for form in store.find(config)}
    assert set(CELLS) == known


def test_every_hash_on_the_page_is_a_committed_cell() -> None:
    hashes = set(re.findall(r"<br>([0-9a-f]{12})\b", PAGE.read_text()))
    assert hashes
    assert hashes <= {path.name.split("-")[0] for path in CELLS}


def test_every_number_on_the_page_carries_its_hash() -> None:
    """In tables of numbers each entry has its own; in the others each row has those of what it is about."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    numbers = [(row, cell) for row in rows for cell in row.strip("| ").split(" | ") if re.match(r"[+-]?\d+\.\d", cell)]
    assert len(numbers) > 500
    for row, cell in numbers:
        assert re.search(r"\b[0-9a-f]{12}\b", cell if "<br>" in cell else row), row


def tried_in(name: str) -> Iterator[tuple[Hyperparameters, float]]:
    """What a tuning tried, on a seed that is not reported, and the accuracy that it gave: cells of one format."""
    tuning = load(name)
    for line in outcome_of(name, tuning, "cpu", Store(ROOT / "results")).lines:
        for column in tuning.columns:
            for cell in line.numbers[column.name].cells:
                yield tuning.cell(line.row, column), cell.final


def test_tuned_adaptive_clipping_is_what_the_tuning_says() -> None:
    """For every dataset, budget and first clip norm: the best that was tried."""
    table = load("table-strict-uniform")
    tried: dict[tuple[str, float, float], dict[float, tuple[float, float]]] = {}
    for setting, final in tried_in("tuning-adaptive"):
        finals = tried.setdefault((setting.dataset, min(setting.epsilon), setting.clip_norm), {})
        finals[final] = (setting.server_momentum, setting.server_rate)
    (tuned,) = [column for column in table.columns if column.name == "adaptive-tuned"]
    for shown in table.shown_rows():
        setting = table.cell(shown, tuned)
        finals = tried[setting.dataset, min(setting.epsilon), setting.clip_norm]
        assert (setting.server_momentum, setting.server_rate) == finals[max(finals)], shown.name


def test_a_chosen_clip_norm_is_what_the_tuning_says() -> None:
    """The best mean of IDP-FedAvg and of our exact method, among norms tried with both."""
    tried: dict[str, dict[float, list[float]]] = {}
    for setting, final in tried_in("tuning-clip"):
        tried.setdefault(setting.dataset, {}).setdefault(setting.clip_norm, []).append(final)
    for dataset, norms in tried.items():
        means = {norm: sum(finals) / 2 for norm, finals in norms.items() if len(finals) == 2}
        assert chosen_clip_norms().get(dataset, 250) == max(means, key=lambda norm: means[norm]), dataset


@pytest.mark.parametrize("name", [name.removesuffix("-tuning") for name in tunings()])
def test_a_best_clip_norm_is_what_validation_data_says(name: str) -> None:
    """Of every row and column, the first of the best; where it was tried at all."""
    experiment, tried = load(name), load(f"{name}-tuning")
    assert all(tried.cell(row, column).tested_on == "validation" for row in tried.rows for column in tried.columns)
    lines = {line.row.name: line for line in outcome_of(name, tried, "cpu", Store(ROOT / "results")).lines}
    for row in experiment.rows:
        for column in row.best:
            line = lines[f"{row.name}-{column}"]
            means = {line.row.best[times]: number.mean for times, number in line.numbers.items()}
            assert row.best[column] == max(means, key=lambda norm: means[norm]), (row.name, column)


@pytest.mark.parametrize(
    ("prefix", "row"),
    [
        *(("", row) for name in ("when-to-spend", "when-to-spend-cnn") for row in load(name).rows),
        *(("recipe-", row) for row in load("what-privacy-costs").rows),
    ],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_a_measured_memory_is_the_one_that_was_measured(prefix: str, row: Row) -> None:
    file = f"{prefix}{row.name.removesuffix('-strict')}.json"
    measured = json.loads((ROOT / "results" / "influence" / file).read_text())
    assert row.setting["influence"] == [float(f"{round(value, 4):g}") for value in measured["influence"]]


@pytest.mark.parametrize("path", CELLS[::10], ids=lambda path: path.stem)
def test_nobody_overspends_in_a_cell(path: Path) -> None:
    cell = read(Cell, json.loads(path.read_text()), path.name)
    for budget, spent in zip(cell.epsilon, cell.epsilon_spent, strict=True):
        assert spent is None or spent <= budget * (1 + 1e-4)
