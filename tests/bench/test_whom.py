"""Whom privacy costs most: shares are counted right, and pages say what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from bench.whom.__main__ import MEASURED, PAGE, chart, refreshed
from bench.whom.costs import Costs, all_costs, answer
from bench.whom.shares import EXPERIMENT, WITH, WITHOUT, config_of, kept_shares, measured_share

from nestegg import InputError
from nestegg.configuration.config import changed, load_config
from nestegg.configuration.own import load_data
from nestegg.data import Dataset
from nestegg.experiments.cells import Store, plan_of
from nestegg.experiments.definition import load
from nestegg.runs import Simulation
from nestegg.training import train

ROOT = Path(__file__).parents[2]
COSTS = Costs(
    row="row",
    title="Row",
    hashes=("a", "b"),
    names=("0", "1"),
    without=np.array([90.0, 80.0]),
    labels=np.array([[1.0, 5.0], [3.0, 7.0]]),
    clients=np.array([[2.0, 4.0, -1.0], [3.0, 1.0, 2.0]]),
    groups=(np.array([3.0, 3.5]), np.array([1.0, 2.0])),
)


def test_shares_are_those_of_a_loop_over_samples() -> None:
    config = changed(load_config(ROOT / "examples" / "digits.toml"), "training", rounds=3)
    data = load_data(config)
    assert isinstance(data, Dataset)
    share = measured_share(config, data)
    task = Simulation(config, plan_of(config), data)
    model, _ = train(task.federation)
    seen: dict[int, list[bool]] = {}
    with torch.no_grad():
        for x, y in zip(data.test_x, data.test_y.tolist(), strict=True):
            seen.setdefault(y, []).append(int(model(x[None]).argmax()) == y)
    labels = [100.0 * np.mean(seen[label]) for label in range(10)]
    assert share.labels == pytest.approx(labels, abs=1e-3)
    own = [np.mean([labels[y] for y in data.train_y[part].tolist()]) for part in task.parts]
    assert share.clients == pytest.approx(own, abs=1e-2)


def test_costs_by_hand() -> None:
    assert COSTS.by_label.tolist() == [2.0, 6.0]
    assert COSTS.tenth == (4.0 + 3.0) / 2
    assert COSTS.gaining == 1 / 6
    # The seeds differ by 2 and 1.5 points; the interval of two is the mean ± 12.706 standard errors.
    assert COSTS.lead == pytest.approx([1.75, 1.75 - 12.7062 * 0.25, 1.75 + 12.7062 * 0.25], rel=1e-4)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("row: dearest label", "6.0"),
        ("*: strictest minus largest", "1.8"),
        ("row: the strict pay more", "0 of 1"),
        ("*: gain", "16.7"),
    ],
)
def test_a_link_asks_for_a_number(asked: str, said: str) -> None:
    assert answer([COSTS], asked) == said


@pytest.mark.parametrize("asked", ["row: the weather", "column: gain"])
def test_a_link_that_asks_for_nothing_known_is_refused(asked: str) -> None:
    with pytest.raises(InputError, match=r"whom\.md"):
        answer([COSTS], asked)


def test_pages_say_what_was_measured() -> None:
    costs = all_costs(kept_shares(MEASURED))
    assert refreshed(costs) == {path: path.read_text(encoding="utf-8") for path in refreshed(costs)}
    shown = PAGE.read_text(encoding="utf-8")
    assert all(hash_ in shown for one in costs for hash_ in one.hashes)
    chart(costs).to_dict()


def test_shares_are_of_the_runs_of_the_table() -> None:
    """Where labels are as frequent as each other, the mean of their shares is the accuracy of the committed cell."""
    experiment, kept, store = load(EXPERIMENT), kept_shares(MEASURED), Store(ROOT / "results")
    assert list(kept.shares) == [row.name for row in experiment.rows]
    for row in experiment.rows:
        for name in (WITHOUT, WITH):
            found = kept.shares[row.name][name]
            assert list(found) == [str(seed) for seed in experiment.seeds]
            for seed, share in found.items():
                cell = store.get(config_of(experiment, row, name, int(seed)))
                assert cell is not None
                assert share.hash == cell.hash
                if experiment.dataset(row) in ("fashion-mnist", "cifar10"):
                    assert np.mean(share.labels) == pytest.approx(cell.final, abs=0.3)


@pytest.mark.parametrize("row", ["fmnist", "fmnist-strict", "cifar10", "cifar10-strict"])
def test_costs_are_what_committed_cells_lose(row: str) -> None:
    """Where labels are as frequent as each other, their mean cost is FedAvg's accuracy minus the recipe's."""
    experiment, store = load(EXPERIMENT), Store(ROOT / "results")
    found = next(one for one in experiment.rows if one.name == row)
    finals = {WITHOUT: 0.0, WITH: 0.0}
    for name in finals:
        cells = [store.get(config_of(experiment, found, name, seed)) for seed in experiment.seeds]
        finals[name] = float(np.mean([cell.final for cell in cells if cell is not None]))
    (costs,) = [one for one in all_costs(kept_shares(MEASURED)) if one.row == row]
    assert costs.by_label.mean() == pytest.approx(finals[WITHOUT] - finals[WITH], abs=0.1)
