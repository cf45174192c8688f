"""What clients say of a model, as pictures: what is drawn is what was told, within its noise."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nestegg
from nestegg import Budget, Federation, Group, LocalTraining, Mechanics, Plan, Randomness, RoundReport, SideStatistics
from nestegg.audit.folder import folder_findings
from nestegg.callbacks import numbers
from nestegg.cli.rounds import RoundProgress
from nestegg.report.charts import label_chart, noise_chart, sampling_chart, spending_chart
from nestegg.report.run_charts import clip_norm_chart, quality_charts, smoothed, told_last, told_rows
from tests.callbacks import EachRound

BOTH = SideStatistics(clip_share=0.05, curve_share=0.2)


def line(number: int, tested: float | None = None, /, **side: float) -> dict[str, Any]:
    """A line of rounds.jsonl, in which every statistic has a standard deviation of 2 unless it is given."""
    told = {**{f"{name}_std": 2.0 for name in side if not name.endswith("_std")}, **side}
    content = {"round": number, "accuracy": tested, "loss": None, "clip_norm": 3.0, "learning_rate": 0.5}
    return {**content, "side": told} if told else content


def rows_of(chart: Any) -> list[dict[str, Any]]:
    """All rows that are drawn as lines, dots or bands."""
    content = json.dumps(chart.to_dict())
    found = re.findall(r'"values": (\[.*?\])', content)
    return [row for rows in found for row in json.loads(rows)]


def test_charts_that_pages_make_unchecked_are_right(exact: Plan) -> None:
    for chart in (
        spending_chart(exact),
        sampling_chart(exact),
        noise_chart(exact),
        label_chart(np.ones((3, 4), np.int64)),
    ):
        assert chart.to_dict()["title"]


def test_nothing_is_drawn_of_nothing() -> None:
    assert quality_charts([]) == quality_charts([line(1), line(2)]) == {}
    assert clip_norm_chart([], "gradient") == {}
    assert told_last([line(1, 50.0)]) is None


def test_without_side_statistics_test_accuracy_is_drawn_as_it_was() -> None:
    charts = quality_charts([line(1, 40.0), line(2, 60.0)])
    assert list(charts) == ["accuracy"]
    assert rows_of(charts["accuracy"]) == [{"round": 1, "accuracy": 40.0}, {"round": 2, "accuracy": 60.0}]


def test_what_clients_say_stands_beside_test_data_at_the_round_before() -> None:
    charts = quality_charts([line(1, 40.0, accuracy=10.0, loss=2.0), line(2, 60.0, accuracy=44.0, loss=1.5)])
    assert list(charts) == ["accuracy"]
    drawn = {(row["measured on"], row["round"]): row for row in rows_of(charts["accuracy"])}
    assert set(drawn) == {
        ("public test data", 1), ("public test data", 2),
        ("clients' own samples, noisy", 0), ("clients' own samples, noisy", 1),
    }  # fmt: skip
    last = drawn["clients' own samples, noisy", 1]
    assert (last["dot"], last["low"], last["high"]) == (44.0, 40.0, 48.0)
    assert drawn["public test data", 2]["accuracy"] == 60.0
    layers = charts["accuracy"].to_dict()["layer"]
    assert ["strokeDash" in layer["encoding"] for layer in layers] == [False, True, False]  # told apart in grey, too


def test_without_test_data_clients_alone_are_drawn_accuracy_and_loss() -> None:
    charts = quality_charts([line(1, accuracy=10.0, loss=2.0), line(2, accuracy=44.0, loss=1.5)])
    assert list(charts) == ["accuracy", "loss"]
    for chart in charts.values():
        assert {row["measured on"] for row in rows_of(chart)} == {"clients' own samples, noisy"}


def test_targets_that_are_no_classes_have_a_loss_alone() -> None:
    rounds = [{**line(t, accuracy=50.0, loss=1.0), "loss": 0.9} for t in (1, 2)]
    assert list(quality_charts(rounds)) == ["loss"]


def test_noise_carries_no_number_out_of_its_bounds_and_means_are_taken_before() -> None:
    rounds = [line(t, accuracy=value, accuracy_std=40.0) for t, value in enumerate((-60.0, 20.0, 160.0), 1)]
    rows = told_rows(rounds, "accuracy", largest=100.0)
    assert [row["dot"] for row in rows] == [0.0, 20.0, 100.0]
    assert [row["low"] for row in rows] == [0.0, 0.0, 80.0]
    assert [row["high"] for row in rows] == [20.0, 100.0, 100.0]
    means = [row["accuracy"] for row in rows]
    assert means == pytest.approx([0.0, 40.0, 40.0])  # (−60 + 20 + 160)/3, and not (0 + 20 + 100)/3
    assert told_last(rounds) == f"40.0 ± {40.0 / math.sqrt(3.0):.1f} %"


def test_a_line_that_rises_stays_where_it_is_but_for_its_end() -> None:
    rises = np.arange(12.0)
    assert smoothed(rises, np.ones(12))[0] == pytest.approx([*range(10), 9.0, 9.0])


def test_rounds_with_less_noise_count_for_more_and_the_error_is_as_stated() -> None:
    stds = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    drawn = np.random.default_rng(0).normal(0.0, stds, (4000, 6))
    means = np.array([smoothed(values, stds)[0] for values in drawn])
    stated = smoothed(drawn[0], stds)[1]
    assert means.std(axis=0) / stated == pytest.approx(np.ones(6), abs=0.06)
    assert stated[-1] == pytest.approx(np.sum(stds[1:] ** -2.0) ** -0.5)  # five rounds, the last of which says little


@pytest.mark.parametrize(("unit", "norm"), [("gradient", 6.0), ("update", 3.0)])
def test_a_learnt_norm_is_drawn_in_the_unit_of_the_plan(unit: str, norm: float) -> None:
    told = rows_of(clip_norm_chart([line(1, below=0.4, below_std=0.1)], unit)["clip-norm"])
    assert {"round": 1, "norm": norm} in told
    assert any(row.get("dot") == 0.4 and row["round"] == 1 for row in told)
    assert rows_of(clip_norm_chart([line(1)], unit)["clip-norm"]) == [{"round": 1, "norm": norm}]


def federation(side: SideStatistics, **options: Any) -> Federation:
    made = torch.Generator().manual_seed(3)
    clients = [(torch.randn(20, 5, generator=made), torch.arange(20) % 3) for _ in range(12)]
    groups = [Group("strict", 8, Budget(20.0)), Group("open", 4, Budget(80.0))]
    plan = nestegg.plan(groups, rounds=3, clip_norm=2.0, **options)
    mechanics = Mechanics(randomness=Randomness(1), side=side)
    return Federation(plan, torch.nn.Linear(5, 3), clients, local=LocalTraining(epochs=1), mechanics=mechanics)


@pytest.mark.parametrize(
    ("side", "options", "charts"),
    [
        (BOTH, {}, {"accuracy", "loss", "clip-norm"}),
        pytest.param(SideStatistics(curve_share=0.2), {}, {"accuracy", "loss"}, marks=pytest.mark.slow),
        (SideStatistics(), {"method": "adaptive-clipping"}, {"clip-norm"}),
        (SideStatistics(), {}, set()),
    ],
    ids=["both", "curve", "adaptive clipping", "none"],
)
def test_a_run_of_ones_own_draws_what_was_told_and_may_be_released(
    side: SideStatistics, options: dict[str, Any], charts: set[str], tmp_path: Path
) -> None:
    seen: list[RoundReport] = []
    nestegg.run(federation(side, **options), tmp_path / "run", callbacks=[EachRound(seen.append)], charts=True)
    page = (tmp_path / "run" / "report.html").read_text()
    assert {path.stem for path in (tmp_path / "run").glob("*.svg")} == {*charts, "spending", "sampling", "noise"}
    assert [one.says for one in folder_findings(tmp_path / "run") if one.refutes] == []
    assert ("accuracy as clients say, mean of the last 5 rounds" in page) == ("accuracy" in charts)
    assert ("samples that they hold back" in page) == ("accuracy" in charts)
    assert "public test data" not in page
    logged = {name: value for name, value in numbers(seen[-1]).items() if name.startswith("side/")}
    assert logged == {f"side/{name}": value for name, value in seen[-1].side.items()}


def test_a_terminal_shows_what_clients_say_where_nothing_public_is_known() -> None:
    world = federation(BOTH)
    state, report = world.round(world.start())
    with RoundProgress(quiet=False, total=3) as display:
        display.on_round(state, report)
        facts = display.progress.tasks[0].fields["facts"]
    said = report.side
    assert f"clients' accuracy {said['accuracy']:.1f} ± {said['accuracy_std']:.1f} %" in facts
    assert f"loss {said['loss']:.2f} ± {said['loss_std']:.2f}" in facts
