"""Charts of outcomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nestegg.experiments.cells import Cell
from nestegg.experiments.figures import curve_rows
from nestegg.experiments.views import charts
from tests.experiments.made import outcome_with


def test_curves_are_means_over_the_seeds_that_all_methods_have(tmp_path: Path, cell: Cell) -> None:
    outcome = outcome_with("figure-accuracy", tmp_path, cell, {"idp-fedavg": (50.0, 60.0, 70.0), "ours": (40.0, 44.0)})
    line = outcome.lines[0]
    points = [(row["method"], row["round"], row["value"]) for row in curve_rows(outcome, line)]
    assert points == [("IDP-FedAvg", 1, 35), ("IDP-FedAvg", 2, 45), ("Ours (paper)", 1, 22), ("Ours (paper)", 2, 32)]
    strangers = {name: line.numbers[name].over({seed}) for name, seed in (("idp-fedavg", 2), ("ours", 1))}
    assert charts(replace(outcome, lines=(replace(line, numbers=line.numbers | strangers),))) == {}


@pytest.mark.parametrize(("name", "legend"), [("table-accuracy", True), ("clip-unit", False)])
def test_a_legend_tells_ours_from_the_papers_where_both_are(
    name: str, legend: bool, tmp_path: Path, cell: Cell
) -> None:
    outcome = outcome_with(name, tmp_path, cell, {"idp-fedavg": (50.0,)})
    assert ('"orient": "bottom"' in charts(outcome)[name].to_json()) == legend


def test_a_lead_is_drawn_once_two_seeds_are_there(tmp_path: Path, cell: Cell) -> None:
    one = outcome_with("when-to-spend-cnn", tmp_path / "one", cell, {"idp-fedavg": (50.0,), "optimal": (51.0,)})
    assert charts(one) == {}
    finals: dict[str, tuple[float, ...]] = {"idp-fedavg": (50.0, 60.0), "optimal": (51.0, 63.0)}
    two = outcome_with("when-to-spend-cnn", tmp_path / "two", cell, finals)
    assert "points ahead of IDP-FedAvg" in charts(two)["when-to-spend-cnn"].to_json()
