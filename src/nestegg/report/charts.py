"""The project's charts, defined once; PNG and SVG come from the same definition, without a network or a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from nestegg.files import write_atomically
from nestegg.planning import Plan

# Okabe and Ito's palette: told apart by the colour-blind too. Lines also differ in dash, for black and white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Sequence[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 4])
_WIDTH, _HEIGHT = 560, 260


def accuracy_chart(rounds: Sequence[dict[str, Any]]) -> alt.Chart:
    """How good does the model become? Test accuracy, round by round."""
    rows = [{"round": line["round"], "accuracy": line["accuracy"]} for line in rounds]
    return _lines(rows, "accuracy", "test accuracy, %", "How good does the model become?")


def spending_chart(plan: Plan) -> alt.Chart:
    """When does each group spend its budget? ε after every round."""
    rows = [
        {"round": t, "spent": epsilon, "group": f"{row.group.name} (ε = {row.group.budget.epsilon:g})"}
        for row in plan.groups[: len(PALETTE)]
        for t, epsilon in enumerate(row.epsilon_spent, 1)
        if np.isfinite(epsilon)
    ]
    return _lines(rows, "spent", "ε spent", "When does each group spend its budget?", "group")


def comparison_chart(curves: dict[str, NDArray[np.float64]]) -> alt.Chart:
    """Which method is ahead, and when? Mean test accuracy over the seeds."""
    rows = [
        {"round": t, "accuracy": float(value), "method": method}
        for method, seeds in curves.items()
        for t, value in enumerate(seeds.mean(axis=0), 1)
    ]
    return _lines(rows, "accuracy", "test accuracy, %", "Which method is ahead, and when?", "method")


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


def save_charts(folder: Path, charts: Mapping[str, alt.TopLevelMixin]) -> dict[str, str]:
    """Write every chart as PNG, and give back its SVG."""
    import vl_convert

    pictures = {}
    for name, chart in charts.items():
        specification = chart.to_json()
        write_atomically(folder / f"{name}.png", vl_convert.vegalite_to_png(specification, scale=2))
        pictures[name] = vl_convert.vegalite_to_svg(specification)
    return pictures


def _lines(rows: list[dict[str, Any]], value: str, label: str, title: str, by: str | None = None) -> alt.Chart:
    x = alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(nice=False))
    y = alt.Y(f"{value}:Q", title=label)
    chart: alt.Chart = alt.Chart(alt.Data(values=rows), title=title, width=_WIDTH, height=_HEIGHT)
    chart = chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=alt.value(PALETTE[0]))
    if by is None:
        return chart
    order = list(dict.fromkeys(row[by] for row in rows))
    colours = alt.Scale(domain=order, range=list(PALETTE[: len(order)]))
    dashes = alt.Scale(domain=order, range=[list(dash) for dash in DASHES[: len(order)]])
    return chart.encode(
        color=alt.Color(f"{by}:N", sort=order, scale=colours, title=by),
        strokeDash=alt.StrokeDash(f"{by}:N", sort=order, scale=dashes, title=by),
    )
