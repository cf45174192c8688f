"""Cells: what they measure, how they are kept, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nestegg.configuration.config import changed
from nestegg.experiments import cells as cells_module
from nestegg.experiments import runner
from nestegg.experiments.cells import FORMAT, Cell, Store, hash_of, measure
from nestegg.runs import start_run
from tests.experiments.made import config_of, remade


def test_a_cell_is_what_a_run_of_its_configuration_gives(cell: Cell, tmp_path: Path) -> None:
    summary = start_run(config_of("table-accuracy"), tmp_path / "run")
    assert cell.final == pytest.approx(summary["final_accuracy"], abs=1e-3)
    assert [group["epsilon_here"] for group in summary["groups"]] == pytest.approx(cell.epsilon_spent, rel=1e-3)
    curve = [json.loads(line)["accuracy"] for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert cell.accuracy == pytest.approx(curve, abs=1e-3)
    assert len(cell.training_loss) == len(curve)


def test_curves_take_few_test_samples_and_the_end_takes_all(monkeypatch: pytest.MonkeyPatch, cell: Cell) -> None:
    monkeypatch.setattr(cells_module, "CURVE_SAMPLES", 20)
    few = measure(config_of("table-accuracy"))
    assert few.final == cell.final
    assert few.accuracy[:-1] != cell.accuracy[:-1]


def test_a_hash_does_not_know_the_seed_or_where_things_are() -> None:
    config = config_of("table-accuracy")
    others = [
        changed(config, "training", seed=5),
        changed(config, "training", workers=2),
        changed(config, "federation", data="/elsewhere"),
    ]
    assert {hash_of(one) for one in others} == {hash_of(config)}
    assert hash_of(changed(config, "privacy", clip_norm=9.0)) != hash_of(config)


def test_a_store_gives_back_what_it_was_given(cell: Cell, tmp_path: Path) -> None:
    store, config = Store(tmp_path), config_of("table-accuracy")
    assert store.get(config) is None
    store.put(cell)
    assert store.get(config) == cell
    assert store.get(changed(config, "training", seed=1)) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('"accuracy": [1', '"accuracy": [2'),
        lambda text: text.replace('"seed": 0', '"seed": 1', 1),
        lambda text: text.replace('"format": 2', '"format": 1'),
        lambda text: text.replace('"format": 2', '"format": 3'),
        lambda text: "[1, 2]",
        lambda text: "[" * 100_000,
        lambda text: '{"format": 2}',
    ],
)
def test_a_damaged_cell_is_run_again_and_nothing_else(cell: Cell, tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    store, config, other = Store(tmp_path), config_of("table-accuracy"), config_of("table-accuracy", column="fedavg")
    store.put(cell)
    store.put(measure(other))
    before = store.path(other).stat().st_mtime_ns
    broken = damage(store.path(config).read_text())
    assert broken != store.path(config).read_text()
    store.path(config).write_text(broken)
    assert store.get(config) is None
    ran: list[Cell] = []
    runner.run_cells([config, other], store, 1, lambda _, done: ran.append(done))
    assert [done.hash for done in ran] == [cell.hash]
    assert store.get(config) is not None
    assert store.path(other).stat().st_mtime_ns == before


def test_a_store_has_cells_of_both_formats_and_gives_the_newer(cell: Cell, tmp_path: Path) -> None:
    store, config = Store(tmp_path), config_of("table-accuracy")
    assert cell.format == FORMAT == 2
    old = remade(cell, format=1, accuracy=[1.0, 2.0, 3.0])
    store.put(old)
    assert store.get(config) == old
    assert [path.name for path in store.folder.iterdir()] == [f"{cell.hash}-0.json"]  # as it always was
    runner.run_cells([config], store, 1, lambda *_: pytest.fail("it is there"))
    store.put(cell)
    assert store.get(config) == cell
    assert store.find(config) == {2: cell, 1: old}
    store.path(config, 1).rename(store.path(config, 2))  # a name that says another format
    assert store.get(config) is None


def test_cells_of_adult_from_before_its_public_scaling_do_not_count(cell: Cell, tmp_path: Path) -> None:
    store, config = Store(tmp_path), config_of("table-accuracy", 2, scale="cpu")
    assert config.federation.dataset == "adult"
    made = remade(cell, hash=hash_of(config), accuracy=[80.0] * 25, format=1)
    store.put(made)
    assert store.get(config) is None
    store.put(remade(made, format=2))
    assert store.get(config) is not None


@pytest.mark.slow
def test_processes_change_no_result(tmp_path: Path) -> None:
    configs = [config_of("table-accuracy", column=name) for name in ("fedavg", "idp-fedavg", "ours")]
    results = []
    for jobs in (1, 2):
        store = Store(tmp_path / str(jobs))
        runner.run_cells(configs, store, jobs, lambda *_: None)
        results.append([store.get(config) for config in configs])
    for one, two in zip(*results, strict=True):
        assert one is not None
        assert two is not None
        assert (one.accuracy, one.training_loss) == (two.accuracy, two.training_loss)
