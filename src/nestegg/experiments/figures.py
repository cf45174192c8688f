"""The charts of an experiment: the same methods in the same colours, marks and dashes everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from nestegg.experiments.cells import plan_of
from nestegg.experiments.definition import Column
from nestegg.experiments.outcomes import Line, Outcome, paired
from nestegg.experiments.scales import configured, scaled
from nestegg.planning import COMPARED
from nestegg.report.charts import DASHES, LINE_LEGEND, PALETTE

_PLAIN = "#7F7F7F"  # of columns that are all of one method
_Panel = alt.LayerChart | alt.FacetChart
_PANEL = 300
_LABELS = {"accuracy": "test accuracy, %", "training_loss": "mean training loss"}


def accuracy_chart(outcome: Outcome) -> alt.ConcatChart | None:
    """Our accuracy with its standard deviation, and the paper's, method by method and row by row; none before cells."""
    drawn = [line for line in outcome.lines if any(number.cells for number in line.numbers.values())]
    if not drawn:
        return None
    order = [column.label for column in outcome.experiment.columns]
    colours = alt.Scale(domain=order, range=[_colour(column) for column in outcome.experiment.columns])
    whose = alt.Scale(domain=["ours", "paper"], range=["circle", "diamond"])
    points = [point for line in drawn for point in _points(outcome, line)]
    values = [point[key] for point in points for key in ("accuracy", "low", "high") if key in point]
    span = alt.Scale(domain=[max(0.0, min(values) - 2), min(100.0, max(values) + 2)], nice=False, zero=False)
    fill = alt.Fill("method:N", scale=colours, legend=None)
    compared = any(point["whose"] == "paper" for point in points)  # otherwise there is nothing to tell apart
    legend = alt.Legend(orient="bottom") if compared else None
    panels = []
    for line in drawn:
        base = alt.Chart(alt.Data(values=_points(outcome, line)), title=_small(line.row.label), width=_PANEL).encode(
            y=alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("method:N", scale=colours, legend=None),
        )
        spread = base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q", title="test accuracy, %", scale=span), x2="high:Q"
        )
        marks = base.mark_point(size=80, strokeWidth=1.6, opacity=1).encode(
            x=alt.X("accuracy:Q", title="test accuracy, %"),
            shape=alt.Shape("whose:N", scale=whose, title=None, legend=legend),
            fill=alt.condition("datum.whose == 'ours'", fill, alt.value("transparent")),
            tooltip=["method:N", "whose:N", alt.Tooltip("accuracy:Q", format=".2f"), "hash:N"],
        )
        panels.append(alt.layer(spread, marks))
    chart: alt.ConcatChart = alt.concat(*panels, columns=2, title=outcome.experiment.question, spacing=16)
    return chart


def lead_chart(outcome: Outcome) -> _Panel | None:
    """How far each method is ahead of the first, row by row."""
    first, *others = outcome.experiment.columns
    return leads_chart(outcome.experiment.question, outcome.lines, others, first)


def leads_chart(title: str, lines: Sequence[Line], methods: Sequence[Column], rival: Column) -> _Panel | None:
    """How far methods are ahead of a rival, row by row, with the interval of paired seeds; none before there is one."""
    points = [
        {"row": line.row.label, "method": column.label, "ahead": duel.ahead, "low": low, "high": high}
        for line in lines
        for column in methods
        if (duel := paired(column.name, rival.name, line.numbers)) is not None and duel.interval is not None
        for low, high in [duel.interval]
    ]
    if not points:
        return None
    order = [column.label for column in methods]
    colours = alt.Scale(domain=order, range=[PALETTE[i % len(PALETTE)] for i in range(len(order))])
    legend = (
        alt.Legend(title=None, orient="bottom", columns=2, columnPadding=40, labelLimit=260) if len(order) > 1 else None
    )
    step = alt.Step(max(9, 22 // len(order)))  # a row has room for its label
    chart = alt.Chart(alt.Data(values=points), title=title, width=520, height=step)
    base = chart.encode(
        y=alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelLimit=300, grid=True)),
        yOffset=alt.YOffset("method:N", sort=order),
        color=alt.Color("method:N", sort=order, scale=colours, legend=legend),
    )
    spread = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=f"points ahead of {rival.label}"), x2="high:Q")
    shapes = alt.Shape("method:N", sort=order, scale=alt.Scale(domain=order), legend=legend)
    marks = base.mark_point(filled=True, size=60, opacity=1).encode(
        x="ahead:Q", shape=shapes, tooltip=["row:N", "method:N", "ahead:Q"]
    )
    zero = alt.Chart(alt.Data(values=[{"ahead": 0}])).mark_rule(color="#000000").encode(x="ahead:Q")
    return alt.layer(zero, spread, marks)


def curve_rows(outcome: Outcome, line: Line) -> list[dict[str, Any]]:
    """Every method's mean over the seeds that all of them have, round by round.

    Accuracy without the last round: it is measured on other samples, and would look like a step.
    """
    rows: list[dict[str, Any]] = []
    common = _common_seeds(line)
    for column in outcome.experiment.columns:
        number = line.numbers[column.name].over(common)
        if number.cells:
            mean = np.array([getattr(cell, number.measure) for cell in number.cells], np.float64).mean(axis=0)
            shown = mean[:-1] if number.measure == "accuracy" else mean
            rows += [{"round": t, "value": v, "method": column.label} for t, v in enumerate(shown.tolist(), 1)]
    return [row for row in rows if np.isfinite(row["value"])]


def curves_chart(outcome: Outcome) -> alt.ConcatChart | None:
    """A panel for each row: every method's curve, and where spending begins; none without a seed that methods share."""
    panels = []
    for line in outcome.lines:
        if rows := curve_rows(outcome, line):
            setting, _ = scaled(outcome.experiment.cell(line.row, outcome.experiment.columns[0]), outcome.scale)
            first, seeds = next(iter(line.numbers.values())), len(_common_seeds(line))
            title = line.row.label if seeds == first.asked else f"{line.row.label}, {seeds} of {first.asked} seeds"
            panels.append(_panel(outcome, rows, _LABELS[first.measure], title, sorted(set(setting.transition))))
    return _side_by_side(outcome, panels) if panels else None


def spending_chart(outcome: Outcome) -> alt.ConcatChart:
    """A panel for each group: ε after every round, method by method, below the group's budget. Plans say it all."""
    experiment, panels = outcome.experiment, []
    for line in outcome.lines:
        plans = {
            column.label: plan_of(configured(experiment.cell(line.row, column), outcome.scale, 0))
            for column in experiment.columns
        }
        for i, group in enumerate(next(iter(plans.values())).groups):
            rows = [
                {"round": t, "value": spent, "method": label}
                for label, plan in plans.items()
                for t, spent in enumerate(plan.groups[i].epsilon_spent, 1)
            ]
            budget = group.group.budget.epsilon
            title = f"{line.row.label}, {group.group.name}, ε = {budget:g}"
            panels.append(_panel(outcome, rows, "ε spent", title, [], budget))
    return _side_by_side(outcome, panels)


def relative_noise(outcome: Outcome, line: Line) -> dict[str, NDArray[np.float64]]:
    """By method: the noise σ^t / q^t that a round adds to a parameter, relative to the first method's."""
    curves = {}
    for column in outcome.experiment.columns:
        plan = plan_of(configured(outcome.experiment.cell(line.row, column), outcome.scale, 0))
        curves[column.label] = np.array(plan.round_noise_multiplier) / np.array(plan.mean_sampling_rate)
    first = next(iter(curves.values()))
    return {label: curve / first for label, curve in curves.items()}


def noise_chart(outcome: Outcome) -> alt.ConcatChart:
    """A panel for each row: noise in a parameter, round by round."""
    panels = []
    for line in outcome.lines:
        rows = [
            {"round": t, "value": value, "method": label}
            for label, curve in relative_noise(outcome, line).items()
            for t, value in enumerate(curve.tolist(), 1)
        ]
        first = outcome.experiment.columns[0].label
        panels.append(_panel(outcome, rows, f"noise in a parameter, {first} = 1", line.row.label, []))
    return _side_by_side(outcome, panels)


def _side_by_side(outcome: Outcome, panels: list[_Panel]) -> alt.ConcatChart:
    chart: alt.ConcatChart = alt.concat(*panels, columns=2, title=outcome.experiment.question)
    return chart


def _panel(
    outcome: Outcome, rows: list[dict[str, Any]], label: str, title: str, starts: list[int], budget: float | None = None
) -> _Panel:
    columns = outcome.experiment.columns
    order = [column.label for column in columns]
    colours = alt.Scale(domain=order, range=[_colour(column) for column in columns])
    dashes = alt.Scale(domain=order, range=[list(DASHES[i % len(DASHES)]) for i in range(len(order))])
    legend = alt.Legend(title=None, orient="bottom", columns=2, **LINE_LEGEND)
    curves = (
        alt.Chart(alt.Data(values=rows), title=_small(title), width=_PANEL, height=220)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(opacity=0, size=90))
        .encode(
            x=alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(nice=False)),
            y=alt.Y("value:Q", title=label, scale=alt.Scale(zero=budget is not None)),
            color=alt.Color("method:N", sort=order, scale=colours, legend=legend),
            strokeDash=alt.StrokeDash("method:N", sort=order, scale=dashes, legend=legend),
            tooltip=["method:N", "round:Q", alt.Tooltip("value:Q", title=label, format=".4~r")],
        )
    )
    marks: list[alt.Chart] = [curves]
    if starts:
        lines = alt.Data(values=[{"round": start} for start in starts])
        marks.append(alt.Chart(lines).mark_rule(color="#7F7F7F", strokeDash=[2, 4]).encode(x="round:Q"))
    if budget is not None:
        line = alt.Data(values=[{"value": budget}])
        marks.append(alt.Chart(line).mark_rule(color="#7F7F7F", strokeDash=[2, 4]).encode(y="value:Q"))
    return alt.layer(*marks)


def _small(title: str) -> alt.TitleParams:
    """A panel's title, below that of all."""
    return alt.TitleParams(title, fontSize=12)


def _common_seeds(line: Line) -> set[int]:
    """Of all methods that have been run at all."""
    run = [set(number.values) for number in line.numbers.values() if number.cells]
    return set.intersection(*run) if run else set()


def _points(outcome: Outcome, line: Line) -> list[dict[str, Any]]:
    points = []
    for column in outcome.experiment.columns:
        number = line.numbers[column.name]
        if number.cells:
            mean, spread = number.mean, number.deviation
            ours = {"accuracy": mean, "whose": "ours", "low": mean - spread, "high": mean + spread}
            points.append({"method": column.label, "hash": number.hash, **ours})
        if number.paper is not None:
            points.append({"method": column.label, "accuracy": number.paper, "whose": "paper"})
    return points


def _colour(column: Column) -> str:
    method = column.setting.get("method")
    return COMPARED[method].colour if method is not None else _PLAIN
