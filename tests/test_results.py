"""docs/results.md says what the committed cells say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from nestegg.experiments.cells import Cell, Store
from nestegg.experiments.definition import load, names
from nestegg.experiments.outcomes import configs_of
from nestegg.schema import read

ROOT = Path(__file__).parent.parent
CELLS = sorted((ROOT / "results" / "cells").glob("*.json"))


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", ROOT / "docs" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_the_committed_cells(results: ModuleType) -> None:
    text = results.PAGE.read_text()
    assert results.refreshed(text, results.outcomes()) == text
    pictures = re.findall(r"\(images/results/([^)]+)\)", text)
    assert pictures
    assert all((results.PICTURES / picture).exists() for picture in pictures)


def test_every_committed_cell_is_whole_and_belongs_to_an_experiment() -> None:
    store, known = Store(ROOT / "results"), set()
    for name in names():
        experiment = load(name)
        for configs in configs_of(experiment, "cpu", experiment.seeds).values():
            known |= {store.path(config) for config in configs if store.get(config) is not None}
    assert set(CELLS) == known


def test_every_hash_on_the_page_is_a_committed_cell(results: ModuleType) -> None:
    hashes = set(re.findall(r"<br>([0-9a-f]{12})\b", results.PAGE.read_text()))
    assert hashes
    assert hashes <= {path.name.split("-")[0] for path in CELLS}


def test_every_number_on_the_page_carries_its_hash(results: ModuleType) -> None:
    """In tables of numbers each entry has its own; in the others each row has those of what it is about."""
    rows = [line for line in results.PAGE.read_text().splitlines() if line.startswith("| ")]
    numbers = [(row, cell) for row in rows for cell in row.strip("| ").split(" | ") if re.match(r"[+-]?\d+\.\d", cell)]
    assert len(numbers) > 500
    for row, cell in numbers:
        assert re.search(r"\b[0-9a-f]{12}\b", cell if "<br>" in cell else row), row


@pytest.mark.parametrize("path", CELLS[::10], ids=lambda path: path.stem)
def test_nobody_overspends_in_a_cell(path: Path) -> None:
    cell = read(Cell, json.loads(path.read_text()), path.name)
    for budget, spent in zip(cell.epsilon, cell.epsilon_spent, strict=True):
        assert spent is None or spent <= budget * (1 + 1e-4)
