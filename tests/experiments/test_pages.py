"""Outcomes on disk: files for programs and people, and the blocks of a page that is written by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from nestegg.errors import InputError
from nestegg.experiments.cells import Cell
from nestegg.experiments.pages import PICTURES, RULES, markdown, refresh_page, refreshed, write_outcomes
from tests.experiments.made import outcome_with

RULE_BLOCK = "<!-- rules -->\n<!-- /rules -->\n"


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


def test_blocks_are_made_anew_and_the_words_around_them_stay(tmp_path: Path, cell: Cell) -> None:
    outcome = outcome_with("table-cifar10", tmp_path, cell, {"idp-fedavg": (50.0,)})
    page = tmp_path / "page.md"
    block = "<!-- table-cifar10 -->\nold: \\1\n<!-- /table-cifar10 -->"
    page.write_text(f"# Mine\n{RULE_BLOCK}\nBefore it.\n\n{block}\n\nAfter it.\n")
    refresh_page(page, [outcome])
    text = page.read_text()
    head, rest = text.split("<!-- table-cifar10 -->\n")
    made, tail = rest.split("\n<!-- /table-cifar10 -->")
    assert head == "# Mine\n<!-- rules -->\n" + "\n\n".join(RULES) + "\n<!-- /rules -->\n\nBefore it.\n\n"
    assert made == f"![{outcome.experiment.question}](images/results/table-cifar10.svg)\n\n{markdown(outcome)}".strip()
    assert tail == "\n\nAfter it.\n"
    assert refreshed(text, [outcome], {"table-cifar10"}) == text
    assert "![" not in refreshed(text, [outcome], ())
    assert (tmp_path / PICTURES / "table-cifar10.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    "block",
    [
        "",
        "<!-- table-cifar10 -->",
        "<!-- /table-cifar10 -->\n<!-- table-cifar10 -->",
        "<!-- table-cifar10 -->\n<!-- /table-cifar10 -->\n" * 2,
    ],
)
def test_a_page_without_one_place_for_an_outcome_is_refused(block: str, tmp_path: Path, cell: Cell) -> None:
    outcome = outcome_with("table-cifar10", tmp_path, cell, {})
    with pytest.raises(InputError, match="one block for table-cifar10"):
        refreshed(RULE_BLOCK + block, [outcome], ())
