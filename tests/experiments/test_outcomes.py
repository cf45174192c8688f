"""Verdicts and tests by the stated rules, and formats that are never mixed."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestegg.experiments import outcomes
from nestegg.experiments.cells import Cell, Store, hash_of
from nestegg.experiments.definition import Row, load
from nestegg.experiments.outcomes import Duel, Line, Number, outcome_of
from nestegg.experiments.pages import markdown
from nestegg.experiments.rows import NUMBERS, number_rows, wide_rows
from nestegg.experiments.scales import configured
from tests.experiments.made import entry, outcome_with, remade


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ([entry(70, 72.9), entry(60, 62)], "agrees in value"),
        ([entry(70, 71.5), entry(60, 58.6)], "agrees in value"),
        ([entry(70, 72.9), entry(60, 57.1)], "agrees in order"),  # the difference is 5.8 points off
        ([entry(34.97, 37.8), entry(35.41, 32.6)], "does not agree"),
        ([entry(70, 74), entry(60, 60)], "agrees in order"),
        ([entry(70, 66, 82), entry(60, 60, 60)], "agrees in order"),
        ([entry(70, 50), entry(60, 55)], "does not agree"),
        ([entry(70.2, 50), entry(70, 55)], "agrees in order"),  # the paper has them 0.2 points apart
        ([entry(70, 50)], "does not agree"),  # one method has no order
        ([entry(70.5, 50), entry(70, 55)], "does not agree"),
        ([entry(70, 50), entry(60, 50)], "does not agree"),
        ([entry(None, 50)], "no paper number"),
        ([entry(70, asked=3), entry(60, asked=3)], "not run"),
        ([entry(70, 70, asked=3), entry(60, asked=3)], "partly run"),
        ([entry(70, 70, asked=3), entry(60, 60, asked=3)], "agrees in value, 1 of 3 seeds"),
        ([entry(70, 70, 40, asked=3), entry(60, 60, asked=3)], "agrees in value, 1 of 3 seeds"),
    ],
)
def test_verdicts_follow_the_stated_rule(numbers: list[Number], verdict: str) -> None:
    line = Line(Row(name="r", label="R"), {str(i): number for i, number in enumerate(numbers)}, ())
    assert ", ".join(filter(None, (line.verdict, line.note))) == verdict


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_holm_is_the_closure_of_bonferroni(ps: list[float]) -> None:
    """A hypothesis is rejected if Bonferroni rejects every set of hypotheses that it is in (Marcus et al. 1976)."""

    def closed(i: int) -> float:
        others = [j for j in range(len(ps)) if j != i]
        sets = [(i, *more) for size in range(len(ps)) for more in combinations(others, size)]
        return max(min(1.0, len(some) * min(ps[j] for j in some)) for some in sets)

    assert outcomes.holm(ps) == pytest.approx([closed(i) for i in range(len(ps))])


def test_tests_against_one_rival_are_corrected_for_the_rows(tmp_path: Path, cell: Cell) -> None:
    finals: dict[str, tuple[float, ...]] = {"idp-fedavg": (50.0, 60.0, 55.0), "optimal": (51.0, 62.0, 58.0)}
    (line, *rest) = outcome_with("when-to-spend", tmp_path, cell, finals).lines
    (duel,) = line.duels  # of one row of fourteen; the other columns have no cells
    assert (duel.rival, duel.tested, duel.verdict) == ("idp-fedavg", True, "cannot tell")
    t = 2.0 * math.sqrt(3.0)  # as below
    assert duel.p == 1.0 < 14 * (1.0 - t / math.sqrt(2.0 + t * t))
    assert outcomes.holm([0.01, 0.001], 14) == pytest.approx([0.13, 0.014])
    only = load("when-to-spend").only("fmnist-features")
    assert only is not None
    assert only.family == 14
    assert duel.interval is not None
    assert duel.interval[0] < 0.0 < duel.ahead < duel.interval[1]
    assert not any(other.duels for other in rest)


def test_a_duel_is_a_paired_t_test(tmp_path: Path, cell: Cell) -> None:
    finals: dict[str, tuple[float, ...]] = {
        "idp-fedavg": (50.0, 60.0, 55.0),
        "ours": (51.0, 62.0, 58.0),
        "exact": (50.9, 60.8, 56.1),
    }
    outcome = outcome_with("table-cifar10", tmp_path, cell, finals)
    ours, exact, printed = outcome.lines[0].duels  # PLD has no rival here: IDP-FedAvg is planned with RDP
    # Differences 1, 2, 3: t = 2 / (1 / √3) with two degrees of freedom.
    t = 2.0 * math.sqrt(3.0)
    assert ours.ahead == pytest.approx(2.0)
    assert ours.p == pytest.approx(1.0 - t / math.sqrt(2.0 + t * t))
    assert ours.verdict == "cannot tell"
    assert (exact.method, exact.rival, exact.seeds) == ("exact", "idp-fedavg", 3)
    assert exact.p is not None
    assert exact.p < 0.05
    assert exact.verdict == "beats rival"
    assert (printed.method, printed.rival) == ("exact", "ours")
    assert printed.ahead == pytest.approx(-16 / 15)
    equal = {column: entry(None, *(final + shift for final in (64.86, 77.5, 68.79))) for column, shift in
             (("ours", 1.01), ("idp-fedavg", 0.0))}  # fmt: skip
    tied = outcomes.paired("ours", "idp-fedavg", equal)
    assert tied is not None
    assert (tied.ahead, tied.p) == (pytest.approx(1.01), None)
    assert Duel("a", "b", -1.0, 0.01, 3).verdict == "loses to rival"
    broken = outcomes.paired(
        "ours", "idp-fedavg", {"ours": entry(None, math.nan, 1.0), "idp-fedavg": entry(None, 1, 2)}
    )
    assert broken is not None
    assert broken.verdict == "not finite"
    assert Duel("a", "b", 1.0, None, 1).verdict == "one seed only"


def test_a_comparison_never_mixes_formats(tmp_path: Path, cell: Cell) -> None:
    old = remade(cell, format=1)
    outcome_with("table-cifar10", tmp_path, old, {"idp-fedavg": (50.0, 60.0, 55.0), "ours": (51.0, 62.0, 58.0)})
    outcome = outcome_with("table-cifar10", tmp_path, cell, {"idp-fedavg": (10.0,), "exact": (90.0, 91.0)})
    line = outcome.lines[0]
    assert line.numbers["idp-fedavg"].mean == pytest.approx(55.0)  # six cells of format 1 against three
    assert line.numbers["exact"].cells == ()
    assert [(duel.method, duel.rival) for duel in line.duels] == [("ours", "idp-fedavg")]
    assert outcome.formats == [
        "cifar10: cells of format 1 (noise in floating point, before the lattice).",
        "cifar10: 2 cells of another format are not shown.",
    ]
    heads, rows = wide_rows(outcome)
    assert "of another format" in {row[heads.index(line.row.label)] for row in rows if row[0] == "Ours (exact, RDP)"}
    assert {row[NUMBERS.index("format")] for row in number_rows(outcome)} == {"1", "–"}
    # As many of each: the newest, and nothing of the others is in any mean or test.
    outcome = outcome_with(
        "table-cifar10", tmp_path, cell, {"idp-fedavg": (10.0, 11.0), "exact": (90.0, 91.0, 92.0), "ours": (20.0,)}
    )
    numbers = outcome.lines[0].numbers
    assert {cell.format for number in numbers.values() for cell in number.cells} == {2}
    assert (numbers["idp-fedavg"].mean, numbers["idp-fedavg"].others) == (10.5, 1)
    assert (numbers["ours"].mean, numbers["ours"].others) == (20.0, 2)
    assert [duel.seeds for duel in outcome.lines[0].duels] == [1, 2, 1]
    assert "1 of another format" in markdown(outcome)


def test_rows_of_one_dataset_have_one_format_and_other_datasets_their_own(tmp_path: Path, cell: Cell) -> None:
    """So that rows of a table, which words compare, do not differ in format."""
    experiment, store = load("table-saving-rates"), Store(tmp_path)
    (column,) = (column for column in experiment.columns if column.name == "ours")

    def put(row: Row, seed: int, form: int) -> None:
        config = configured(experiment.cell(row, column), "cpu", seed)
        store.put(remade(cell, hash=hash_of(config), seed=seed, format=form, accuracy=[50.0] * 25))

    for row in experiment.rows[:3]:  # MNIST
        put(row, 0, 1)
    put(experiment.rows[0], 1, 2)
    put(experiment.rows[3], 0, 2)  # FMNIST
    outcome = outcome_of("table-saving-rates", experiment, "cpu", store)
    found = {line.row.name: {cell.format for cell in line.numbers["ours"].cells} for line in outcome.lines}
    assert [found[row.name] for row in experiment.rows[:4]] == [{1}, {1}, {1}, {2}]
    assert len(outcome.formats) == 3
