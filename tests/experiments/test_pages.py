"""Outcomes on disk: files for programs and people."""

from __future__ import annotations

import csv
from pathlib import Path

from nestegg.experiments.cells import Cell
from nestegg.experiments.pages import write_outcomes
from tests.experiments.made import outcome_with


def test_curves_are_written_for_programs_point_by_point(tmp_path: Path, cell: Cell) -> None:
    outcome = outcome_with("figure-accuracy", tmp_path, cell, {"idp-fedavg": (50.0, 60.0), "ours": (40.0, 44.0)})
    write_outcomes(tmp_path, [outcome])
    with (tmp_path / "figure-accuracy-curves.csv").open() as file:
        heads, *points = csv.reader(file)
    assert heads == ["row", "method", "round", "curves"]
    label = outcome.lines[0].row.label
    assert [label, "IDP-FedAvg", "1", "35.0000"] in points  # the mean of 50 - 20 and 60 - 20
    assert len(points) == 4
    endings = {path.name.removeprefix("figure-accuracy") for path in tmp_path.glob("figure-accuracy*")}
    assert endings == {"-curves.csv", ".csv", ".md", ".png", ".svg"}
    assert "](figure-accuracy.svg)" in (tmp_path / "figure-accuracy.md").read_text()
