"""The memory of a training, measured: right where it can be computed, the same every time, on public data alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nestegg
from nestegg.planning.influence import FORMAT
from tests.conftest import Run

ROUNDS, CURVATURE = 8, 0.6


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square().mean() / 2.0


def bowl(method: str = "fedavg", **changes: Any) -> nestegg.Federation:
    """Everybody's loss is a w²/2 and a constant, and each takes one step of gradient descent a round."""
    x, y = torch.full((2, 1), CURVATURE**0.5), torch.tensor([1.0, -1.0])
    groups = [nestegg.Group("all", 3, nestegg.Budget(5.0))]
    options: dict[str, Any] = {
        "local": nestegg.LocalTraining(1, 2, learning_rate=0.9, momentum=0.0, loss=squares),
        "mechanics": nestegg.Mechanics(randomness=nestegg.Randomness(1, reproducible=True)),
        "test": (x, y),
    }
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    made = nestegg.plan(groups, ROUNDS, method=method, spending_rate=1.0)
    return nestegg.Federation(made, model, [(x, y)] * 3, **options | changes)


def test_on_a_bowl_it_is_the_product_of_what_later_rounds_leave() -> None:
    federation = bowl()
    shrinks = 1.0 - CURVATURE * np.array(federation.rates)
    right = [float(shrinks[t + 1 :].prod()) for t in range(ROUNDS)]
    found = nestegg.measure_influence(federation, points=ROUNDS)
    assert found.measured == tuple(range(1, ROUNDS + 1))
    assert found.influence == pytest.approx(right, rel=0.02)
    assert found == nestegg.measure_influence(federation, points=ROUNDS)
    assert all(low <= w <= high for low, w, high in zip(found.low, found.influence, found.high, strict=True))


def test_rounds_between_are_interpolated_between_their_neighbours() -> None:
    whole, some = (nestegg.measure_influence(bowl(), points=points) for points in (ROUNDS, 4))
    assert len(some.measured) == 4
    assert len(some.influence) == ROUNDS
    assert some.influence == pytest.approx(whole.influence, abs=0.06)
    assert list(some.influence) == sorted(some.influence)


def test_the_file_is_what_the_planner_takes(tmp_path: Path) -> None:
    found = nestegg.measure_influence(bowl(), points=3)
    found.save(tmp_path / "influence.json", dataset="a bowl")
    content = json.loads((tmp_path / "influence.json").read_text())
    assert (content["format"], content["dataset"]) == (FORMAT, "a bowl")
    planner = nestegg.Optimal(influence=str(tmp_path / "influence.json"))
    assert planner.influence == pytest.approx(found.influence)


@pytest.mark.parametrize(
    ("federation", "sentence"),
    [
        (lambda: bowl("idp-fedavg"), "the federation's plan must be of method = 'fedavg'"),
        (lambda: bowl(test=None), "the federation has none"),
        (lambda: bowl(mechanics=nestegg.Mechanics()), "randomness must be reproducible"),
    ],
)
def test_what_cannot_be_measured_is_refused(federation: Any, sentence: str) -> None:
    with pytest.raises(nestegg.InputError, match=sentence):
        nestegg.measure_influence(federation())


def test_few_points_and_draws_are_refused() -> None:
    with pytest.raises(nestegg.InputError, match="points = 1"):
        nestegg.measure_influence(bowl(), points=1)
    with pytest.raises(nestegg.InputError, match="draws = 1"):
        nestegg.measure_influence(bowl(), draws=1)


CONFIG = """
[federation]
dataset = "fashion-mnist"
data = "/not/there"
clients = 10
[model]
name = "linear"
[training]
rounds = 4
local_epochs = 1
[privacy]
method = "optimal"
influence = "influence.json"
[[privacy.groups]]
name = "all"
share = 1.0
epsilon = 5.0
"""


def test_the_command_reads_public_data_alone_and_the_plan_reads_its_file(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(CONFIG)
    missing = run("plan", "mine.toml")
    assert missing.code == 2
    assert "influence.json' cannot be read" in missing.err
    result = run("influence", "mine.toml", "--public", "digits", "--points", "3", "--draws", "2")
    assert result.code == 0, result.err
    assert "no client's data was read" in result.out
    assert (tmp_path / "influence.svg").read_text().startswith("<svg")
    assert len(json.loads((tmp_path / "influence.json").read_text())["influence"]) == 4
    planned = run("plan", "mine.toml", "--compare")
    assert planned.code == 0, planned.err
    assert "measured" in planned.out


def test_public_data_is_divided_among_as_many_clients(tmp_path: Path, run: Run) -> None:
    (tmp_path / "mine.toml").write_text(CONFIG.replace("clients = 10\n", "").replace("share = 1.0", "clients = 10"))
    result = run("influence", tmp_path / "mine.toml", "--public", "digits")
    assert result.code == 2
    assert "federation.clients must be given" in result.err
    refused = run("influence", tmp_path / "mine.toml", "--public", "nowhere")
    assert refused.code == 2
