"""The results' pages say what the committed cells say, in few words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nestegg.experiments.answers import asked_pictures
from nestegg.experiments.cells import Cell, Store, hash_of
from nestegg.experiments.definition import Row, chosen_clip_norms, load, names, tunings
from nestegg.experiments.outcomes import configs_of, outcome_of
from nestegg.experiments.reproduction import Reproduction, chosen_experiments
from nestegg.experiments.settings import Hyperparameters
from nestegg.experiments.views import charts
from nestegg.experiments.written import PICTURES, refreshed
from nestegg.schema import read

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FRONT = DOCS / "results.md"
PAGES = [FRONT, *sorted((DOCS / "results").glob("*.md"))]
WHOM = DOCS / "results" / "whom.md"  # made from other measurements: tests/bench/test_whom.py
CELLS = sorted((ROOT / "results" / "cells").glob("*.json"))


@pytest.mark.slow
@pytest.mark.no_cover
def test_pages_and_pictures_are_made_from_the_committed_cells() -> None:
    outcomes = Reproduction(chosen_experiments("all"), "cpu", Store(ROOT / "results")).outcomes()
    pictures = asked_pictures(FRONT.read_text(), {outcome.name: outcome for outcome in outcomes})
    for outcome in outcomes:
        pictures |= charts(outcome)
    kinds = {outcome.experiment.shows: outcome.name for outcome in outcomes if outcome.name in pictures}
    for shown in kinds.values():
        pictures[shown].to_dict()  # users' charts are made unchecked
    folder = DOCS / PICTURES
    assert {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.svg")} == set(pictures)
    assert refreshed(DOCS, outcomes, pictures) == {path: path.read_text() for path in PAGES if path != WHOM}


@pytest.mark.no_cover
def test_every_committed_cell_is_whole_and_belongs_to_an_experiment() -> None:
    store, known = Store(ROOT / "results"), set()
    for name in (*names(), *tunings()):
        experiment = load(name)
        for configs in configs_of(experiment, experiment.scale_for("cpu")).values():
            known |= {store.path(config, form) for config in configs for form in store.find(config)}
    assert set(CELLS) == known


def tables() -> Iterator[tuple[Path, list[str]]]:
    """Rows of all tables on the pages, as cells."""
    for page in PAGES:
        for line in page.read_text().splitlines():
            if line.startswith("| ") and not line.startswith("| ---"):
                yield page, line.strip("| ").split(" | ")


def test_every_hash_is_a_committed_cell() -> None:
    hashes = {one for _, row in tables() for cell in row for one in re.findall(r"\b[0-9a-f]{12}\b", cell)}
    planned = {hash_of(config) for name in names() if not load(name).trains
               for configs in configs_of(load(name), "cpu").values() for config in configs}  # fmt: skip
    assert len(hashes) > 500
    assert hashes <= {path.name.split("-")[0] for path in CELLS} | planned


def test_every_number_carries_its_hash() -> None:
    """In tables of numbers each entry has its own; in the others each row has those of what it is about."""
    numbers = [
        (row, cell) for page, row in tables() if page != FRONT for cell in row if re.match(r"[+-]?\d+\.\d", cell)
    ]
    assert len(numbers) > 500
    for row, cell in numbers:
        assert re.search(r"\b[0-9a-f]{12}\b", cell if "<br>" in cell else " ".join(row)), row


def test_cells_of_tables_are_short() -> None:
    for page, row in tables():
        for cell in row:
            seen = re.sub(r"\]\([^)]*\)|</?\w+>", " ", cell)
            assert len(seen) <= 80, (page.name, cell)


def test_ten_questions_have_a_number_and_a_picture_each() -> None:
    _, *questions = re.split(r"^## \d+\. ", FRONT.read_text().partition("\n## All tables")[0], flags=re.MULTILINE)
    assert len(questions) == 10
    for question in questions:
        assert re.match(r"[^\n]+\?\n", question)
        assert len(re.findall(r"^!\[", question, re.MULTILINE)) == 1
        assert re.search(r'^\*\*\[[^\]]*\]\(results/[\w-]+\.md(#[\w-]+)? "', question, re.MULTILINE)
    assert len(FRONT.read_text().splitlines()) <= 150


def test_no_number_of_the_first_page_is_written_by_hand() -> None:
    without = re.sub(r'!?\[[^\]]*\]\(\S+ "[^"]*"\)', "", FRONT.read_text())
    assert re.findall(r"\d+\.\d+|\d+ of \d+|\d+ %", without) == []


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
    """Of every row and column, the first of the best that were tried, between neighbours that were; if any was."""
    experiment, tried = load(name), load(f"{name}-tuning")
    assert all(tried.cell(row, column).tested_on == "validation" for row in tried.rows for column in tried.columns)
    lines = {line.row.name: line for line in outcome_of(name, tried, "cpu", Store(ROOT / "results")).lines}
    for row in experiment.rows:
        for column in row.best:
            line = lines[f"{row.name}-{column}"]
            means = {line.row.best[times]: number.mean for times, number in line.numbers.items() if number.cells}
            if not means:  # another column's
                continue
            assert row.best[column] == max(means, key=lambda norm: means[norm]), (row.name, column)
            grid = sorted(line.row.best.values())
            place = grid.index(row.best[column])
            assert set(grid[max(0, place - 1) : place + 2]) <= set(means), (row.name, column)


@pytest.mark.parametrize(
    ("prefix", "row"),
    [
        *(("", row) for name in ("when-to-spend", "when-to-spend-cnn") for row in load(name).rows),
        *(("day-", row) for row in load("a-day-norms").rows),
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
