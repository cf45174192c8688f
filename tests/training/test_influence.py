"""The memory of a training, measured: right where it can be computed, the same every time, on public data alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nestegg
from nestegg.cli.influence import _doubts
from nestegg.configuration.config import load_config
from nestegg.planning.influence import FORMAT
from nestegg.runs.configured import public_federation
from nestegg.training import influence
from nestegg.training.influence import LEAST
from tests.conftest import Run
from tests.training.memories import CONFIG, CURVATURE, ROUNDS, bowl


def test_on_a_bowl_it_is_the_product_of_what_later_rounds_leave() -> None:
    federation = bowl()
    shrinks = 1.0 - CURVATURE * np.array(federation.rates)
    right = [max(LEAST, float(shrinks[t + 1 :].prod())) for t in range(ROUNDS)]
    found = nestegg.measure_influence(federation, points=ROUNDS)
    assert found.measured == tuple(range(1, ROUNDS + 1))
    assert found.influence == pytest.approx(right, rel=0.02)
    assert found == nestegg.measure_influence(federation, points=ROUNDS)
    assert all(
        low <= w <= max(high, LEAST) for low, w, high in zip(found.low, found.influence, found.high, strict=True)
    )


@pytest.mark.parametrize("start", [0.0, 0.3, 40.0])
def test_the_push_is_the_least_that_is_seen(start: float) -> None:
    """Found in a few trials, and the same as if all sizes were tried, from the smallest on."""
    federation = bowl(start=start)
    found = nestegg.measure_influence(federation, points=2, draws=2)
    last, pushes = influence._trained(federation, federation.start())[-1], np.random.default_rng(0)
    noises = [torch.from_numpy(pushes.standard_normal(len(last.model))).to(last.model) for _ in range(2)]
    base = influence._loss(federation, last)
    rises = [np.mean([influence.rise(federation, last, s * n, base) for n in noises]) for s in influence._SIZES[:40]]
    assert found.noise == next(s for s, rise in zip(influence._SIZES, rises, strict=False) if rise >= 0.05 * base)


@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_the_training_s_own_noise_cancels(rate: float) -> None:
    """Cohorts, orders and noise are the same with a push, with the opposite push, and without."""
    noisy, quiet = bowl("idp-fedavg", rate=rate), bowl("fedavg", rate=rate)
    ends = [next(nestegg.train(one)[0].parameters()).item() for one in (noisy, quiet)]
    found, right = (nestegg.measure_influence(one, points=4, draws=2) for one in (noisy, quiet))
    assert abs(ends[0] - ends[1]) > 0.05
    assert found.influence == pytest.approx(right.influence, rel=1e-3)


def test_what_is_clipped_forgets_less() -> None:
    """An update that is clipped is as long as its norm, wherever the model was pushed to: it corrects nothing."""
    clipped, free = (bowl("idp-fedavg", start=1.0, clip_norm=norm) for norm in (1e-3, 10.0))
    shrinks = 1.0 - CURVATURE * np.array(free.rates)
    right = [max(LEAST, float(shrinks[t + 1 :].prod())) for t in range(ROUNDS)]
    stays, shrinking = (nestegg.measure_influence(one, points=ROUNDS, draws=2) for one in (clipped, free))
    assert stays.influence == pytest.approx([1.0] * ROUNDS, rel=0.02)
    assert shrinking.influence == pytest.approx(right, rel=0.02)


def test_rounds_between_are_interpolated_between_their_neighbours() -> None:
    whole, some = (nestegg.measure_influence(bowl(), points=points) for points in (ROUNDS, 4))
    assert len(some.measured) == 4
    assert len(some.influence) == ROUNDS
    assert some.influence == pytest.approx(whole.influence, abs=0.06)
    assert list(some.influence) == sorted(some.influence)


def test_a_round_whose_error_stands_for_it_is_named() -> None:
    """Early rounds of a bowl are forgotten, and the error is small; with few draws that differ, it is not."""
    assert nestegg.measure_influence(bowl(), points=ROUNDS).unseen == ()
    curve = {"influence": (0.6, 0.3, 0.1, 1.0), "low": (0.0, 0.2, 0.0, 0.9), "high": (0.0, 0.4, 0.1, 1.1)}
    found = influence.Influence(**curve, measured=(1, 2, 3, 4), memory=1.0, noise=0.1, draws=2)
    assert found.unseen == (1,)
    assert "After noise in round 1 nothing" in _doubts(found)
    assert "more --draws than 2" in _doubts(found)


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


def exploding(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss that is flat nearby, then rises, and is not finite after a step from afar."""
    return torch.where(outputs.abs() < 1e-3, outputs, outputs * 1e30).square().square().mean() + 0.1


def test_a_loss_that_is_not_finite_is_said() -> None:
    local = nestegg.LocalTraining(1, 2, learning_rate=0.9, momentum=0.0, loss=exploding)
    with pytest.raises(nestegg.InputError, match="influence cannot be measured"):
        nestegg.measure_influence(bowl(local=local))


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


@pytest.mark.parametrize(("method", "rate"), [("optimal", 1.0), ("spend-as-you-go", 0.9), ("idp-fedavg", 0.9)])
def test_what_is_measured_spends_evenly_and_is_otherwise_as_configured(
    tmp_path: Path, method: str, rate: float
) -> None:
    federation = public_training(tmp_path, f'method = "{method}"\nclip_norm = 7.0')
    assert federation.plan.method == "idp-fedavg"
    assert federation.plan.mean_sampling_rate == pytest.approx([rate] * 4)
    assert federation.plan.clip_norm == 7.0
    assert [row.group.budget.epsilon for row in federation.plan.groups] == [5.0]
    assert len({*federation.plan.round_noise_multiplier}) == 1
    assert federation.randomness.reproducible


def test_what_is_trained_without_noise_is_measured_without(tmp_path: Path) -> None:
    assert not public_training(tmp_path, 'method = "fedavg"').plan.is_private


def public_training(folder: Path, privacy: str) -> nestegg.Federation:
    written = CONFIG.replace('method = "optimal"\ninfluence = "influence.json"', privacy)
    (folder / "mine.toml").write_text(written)
    return public_federation(load_config(folder / "mine.toml"), "digits")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--points", "1"), "points = 1 must be a whole number, at least 2"),
        (("--draws", "100000"), "draws = 100000 must be a whole number, from 2 to 1000"),
        (("--jobs", "0"), "--jobs = 0 must be a whole number, from 1 to 256"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path: Path, run: Run, options: tuple[str, str], sentence: str) -> None:
    (tmp_path / "mine.toml").write_text(CONFIG)
    out = tmp_path / "influence.json"
    refused = run("influence", tmp_path / "mine.toml", "--public", "digits", "--out", out, *options)
    assert (refused.code, out.exists()) == (2, False)
    assert sentence in refused.err
