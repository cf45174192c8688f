"""What an outcome looks like: for each kind of experiment its tables and its chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import altair as alt
from altair.utils.schemapi import debug_mode

from nestegg.experiments import figures, rows
from nestegg.experiments.outcomes import Outcome

PADDING = {"left": 28, "top": 5, "right": 48, "bottom": 5}  # fonts of readers may be wider than ours
Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # heads and rows


@dataclass(frozen=True)
class View:
    """How one kind of experiment is shown.

    Attributes:
        tables: for people.
        files: tables for programs, by what their files' names end with.
        chart: none before there is anything to draw.
    """

    tables: Callable[[Outcome], list[Table]]
    files: Callable[[Outcome], dict[str, Table]]
    chart: Callable[[Outcome], alt.TopLevelMixin | None]


def view_of(outcome: Outcome) -> View:
    """Return how an outcome is shown."""
    return _VIEWS[outcome.experiment.shows]


@debug_mode(False)  # they are right by tests, and checking takes long
def charts(outcome: Outcome) -> dict[str, alt.TopLevelMixin]:
    """Return the charts of an outcome, by name; none before there is anything to draw."""
    chart = view_of(outcome).chart(outcome)
    return {} if chart is None else {outcome.name: chart.properties(padding=PADDING)}


def _results(outcome: Outcome) -> list[Table]:
    duels = rows.duel_rows(outcome)
    return [rows.wide_rows(outcome), *([(rows.DUELS, duels)] if duels else [])]


def _numbers(outcome: Outcome) -> dict[str, Table]:
    return {"": (rows.NUMBERS, rows.number_rows(outcome))}


def _curves(outcome: Outcome) -> dict[str, Table]:
    heads = (*rows.CURVES, outcome.experiment.shows)
    return {**_numbers(outcome), "-curves": (heads, rows.curve_points(outcome))}


def _spending(outcome: Outcome) -> list[Table]:
    return [(rows.SPENDING, rows.spending_rows(outcome))]


def _noise(outcome: Outcome) -> list[Table]:
    return [(rows.NOISE, rows.noise_rows(outcome))]


_VIEWS = {
    "accuracy": View(_results, _numbers, figures.accuracy_chart),
    "lead": View(_results, _numbers, figures.lead_chart),
    "curves": View(_results, _curves, figures.curves_chart),
    "training-loss": View(_results, _curves, figures.curves_chart),
    "spending": View(_spending, lambda outcome: {"": _spending(outcome)[0]}, figures.spending_chart),
    "noise": View(_noise, lambda outcome: {"": _noise(outcome)[0]}, figures.noise_chart),
}
