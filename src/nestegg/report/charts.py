"""The project's charts, defined once; PNG and SVG come from the same definition, without a network or a browser."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from nestegg.files import write_all
from nestegg.planning import COMPARED, LABELS, Group, Plan

# Okabe and Ito's palette: told apart by the colour-blind too. Lines also differ in dash, for black and white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
DASHES: tuple[Sequence[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 4])
_WIDTH, _HEIGHT = 600, 280
# How all charts look; legends show strokes where lines have marks that only the mouse finds.
_LOOK = {
    "title": {"fontSize": 15, "anchor": "start", "offset": 12},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
    "legend": {"labelFontSize": 12, "titleFontSize": 12, "symbolStrokeWidth": 2, "symbolSize": 160},
}
LINE_LEGEND: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 400, "symbolOpacity": 1, "labelLimit": 260}


@dataclass(frozen=True)
class Picture:
    """A chart as drawn, and as defined, from which a page makes one that answers to the mouse."""

    svg: str
    definition: dict[str, Any]


def spending_chart(plan: Plan) -> alt.Chart:
    """When does each group spend its budget? ε with every round."""
    label, title = f"ε spent, by {LABELS[plan.accountant]}", "When does each group spend its budget?"
    return _by_group(plan, [row.epsilon_spent for row in plan.groups], label, title)


def sampling_chart(plan: Plan, *, budgets: bool = True) -> alt.Chart:
    """How often does each group take part? Its clients' sampling rate in every round."""
    title, values = "How often does each group take part?", [row.sampling_rate for row in plan.groups]
    return _by_group(plan, values, "sampling rate", title, budgets=budgets)


def noise_chart(plan: Plan, *, budgets: bool = True) -> alt.Chart:
    """How well is each group hidden? Its noise multiplier σ in every round."""
    title, values = "How well is each group hidden?", [row.noise_multiplier for row in plan.groups]
    return _by_group(plan, values, "noise multiplier σ", title, budgets=budgets)


def comparison_chart(
    curves: Mapping[str, NDArray[np.float64]], measure: str = "accuracy", label: str = "test accuracy, %"
) -> alt.TopLevelMixin:
    """Which method is ahead, and when? A mean over the seeds, in a band from the lowest to the highest."""
    rows = [
        {
            "round": t,
            measure: float(some.mean()),
            "low": float(some.min()),
            "high": float(some.max()),
            "method": name,
        }
        for name, seeds in curves.items()
        for t, some in enumerate(seeds.T, 1)
    ]
    title = "Which method is ahead, and when?"
    means = lines(rows, measure, label, title, "method", method_colours(curves))
    low = alt.Y("low:Q", title=label, scale=alt.Scale(zero=False))
    bands = means.mark_area(opacity=0.12, strokeWidth=0).encode(y=low, y2="high:Q", tooltip=alt.value(None))
    bands.encoding.strokeDash = alt.Undefined  # areas have none
    means.title = bands.title = alt.Undefined
    return alt.layer(bands, means, title=title)


def method_colours(names: Iterable[str]) -> list[str]:
    """Return a colour for each method: its own, or the next that is free where it has none or another took it.

    >>> method_colours(["fedavg", "exact", "mine"])
    ['#7F7F7F', '#009E73', '#0072B2']
    """
    chosen: list[str] = []
    wished = [COMPARED[name].colour if name in COMPARED else None for name in names]
    for number, colour in enumerate(wished):
        if colour is None or colour in chosen:
            free = [one for one in PALETTE if one not in (*chosen, *wished)]
            colour = free[0] if free else PALETTE[number % len(PALETTE)]
        chosen.append(colour)
    return chosen


def label_chart(labels: NDArray[np.int64]) -> alt.Chart:
    """How different are the clients? Samples of each label, for at most 100 clients."""
    rows = [
        {"client": client + 1, "label": label, "samples": int(count)}
        for client, counts in enumerate(labels[:100])
        for label, count in enumerate(counts)
    ]
    chart: alt.Chart = (
        alt.Chart(alt.Data(values=rows), title="How different are the clients?", width=_WIDTH, height=_HEIGHT)
        .mark_rect()
        .encode(
            x=alt.X("client:O", axis=alt.Axis(labelOverlap=True, title="client")),
            y=alt.Y("label:O", title="label"),
            color=alt.Color("samples:Q", scale=alt.Scale(scheme="blues"), title="samples"),
        )
    )
    return chart


def definition_of(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart as Vega-Lite, looking as all charts do."""
    definition: dict[str, Any] = chart.to_dict(validate=False)
    return {**definition, "config": {**definition["config"], **_LOOK}}


def draw_charts(charts: Mapping[str, alt.TopLevelMixin], note: str | None = None) -> dict[str, Picture]:
    """Return what a page needs of every chart; a note is drawn below each title."""
    pictures = {}
    for name, chart in charts.items():
        definition = definition_of(chart)
        if note is not None:
            definition["title"] = {"text": definition["title"], "subtitle": note}
        pictures[name] = Picture(_drawn(json.dumps(definition)), definition)
    return pictures


@lru_cache(maxsize=32)
def _drawn(definition: str) -> str:
    """A chart as SVG; one that was drawn a moment ago is known."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(json.loads(definition)))  # as text, what is no number would be no JSON


def save_charts(folder: Path, charts: Mapping[str, alt.TopLevelMixin], note: str | None = None) -> dict[str, Picture]:
    """Draw every chart, and write it as PNG and SVG too."""
    pictures = draw_charts(charts, note)
    write_all(folder, chart_files(pictures))
    return pictures


def chart_files(pictures: Mapping[str, Picture]) -> Iterator[tuple[str, str | bytes]]:
    """Yield the name and content of PNG and SVG files of every chart."""
    import vl_convert

    for name, picture in pictures.items():
        yield f"{name}.png", vl_convert.vegalite_to_png(picture.definition, scale=2)
        yield f"{name}.svg", picture.svg


def lines(
    rows: list[dict[str, Any]],
    value: str,
    label: str,
    title: str | None,
    by: str | None = None,
    colours: Sequence[str] = PALETTE,
) -> alt.Chart:
    """Curves over the rounds, told apart by colour and by dash; part of a larger chart if there is no title."""
    x = alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(nice=False))
    y = alt.Y(f"{value}:Q", title=label)
    tooltip = [alt.Tooltip("round:Q"), alt.Tooltip(f"{value}:Q", title=label, format=".4~r")]
    chart: alt.Chart = alt.Chart(alt.Data(values=rows), title=title or alt.Undefined, width=_WIDTH, height=_HEIGHT)
    chart = chart.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(opacity=0, size=90))
    chart = chart.encode(x=x, y=y, color=alt.value(PALETTE[0]), tooltip=tooltip)
    if by is None:
        return chart
    order = list(dict.fromkeys(row[by] for row in rows))
    colour = alt.Scale(domain=order, range=list(colours[: len(order)]))
    dashes = alt.Scale(domain=order, range=[list(dash) for dash in DASHES[: len(order)]])
    return chart.encode(
        color=alt.Color(f"{by}:N", sort=order, scale=colour, legend=alt.Legend(title=by, **LINE_LEGEND)),
        strokeDash=alt.StrokeDash(f"{by}:N", sort=order, scale=dashes, legend=alt.Legend(title=by, **LINE_LEGEND)),
        tooltip=[alt.Tooltip(f"{by}:N"), *tooltip],
    )


def group_label(group: Group, *, budgets: bool = True) -> str:
    """Return how charts call a group: with its budget, unless that stands beside the chart."""
    return f"{group.name} (ε = {group.budget.epsilon:g})" if budgets else group.name


def _by_group(
    plan: Plan, values: Sequence[Sequence[float]], label: str, title: str, *, budgets: bool = True
) -> alt.Chart:
    """One curve a group, in the order and so in the colours of the plan; at most as many as there are colours.

    Values hold for a round, so they are steps: a round is paid for before any client works.
    """
    rows = [
        {"round": t, "value": value, "group": group_label(row.group, budgets=budgets)}
        for row, curve in zip(plan.groups[: len(PALETTE)], values, strict=False)
        for t, value in enumerate(curve, 1)
        if np.isfinite(value)
    ]
    curves = lines(rows, "value", label, title, "group")
    curves.mark.interpolate = "step"
    return curves
