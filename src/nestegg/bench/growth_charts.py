"""How cost grows, on disk: a table, and a chart of seconds and memory for everything that was varied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

import altair as alt

from nestegg.bench.growth import TITLES, Point
from nestegg.files import write_atomically
from nestegg.report.charts import PALETTE, save_charts
from nestegg.report.markup import as_csv

_PANELS = (("seconds", "seconds", PALETTE[0]), ("megabytes", "memory, MB", PALETTE[1]))


def save_growth(folder: Path, points: Sequence[Point]) -> None:
    """Write the points as CSV, and a chart of everything that was varied."""
    heads = [field.name for field in fields(Point)]
    write_atomically(folder / "growth.csv", as_csv(heads, (astuple(point) for point in points)))
    save_charts(folder, {f"growth-{varied}": growth_chart(some) for varied, some in series(points).items()})


def series(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of everything that was varied."""
    return {name: [p for p in points if p.varied == name] for name in dict.fromkeys(p.varied for p in points)}


def power(points: Sequence[Point], what: str) -> float:
    """Return by which power of the varied number something grew from the last point but one to the last.

    >>> power([Point("rounds", 10, 1.0, 20.0), Point("rounds", 100, 10.0, 20.0)], "seconds")
    1.0
    """
    before, after = points[-2:]
    return math.log(getattr(after, what) / getattr(before, what)) / math.log(after.value / before.value)


def growth_chart(points: Sequence[Point]) -> alt.HConcatChart:
    """What does more of it cost? Seconds and memory on logarithmic axes, for one thing that was varied."""
    title = TITLES[points[0].varied]
    rows = [{"value": p.value, "seconds": p.seconds, "megabytes": p.megabytes} for p in points]
    axis = alt.Axis(values=[p.value for p in points], format=".2~s", labelOverlap=False)
    panels = [
        alt.Chart(alt.Data(values=rows), width=260, height=180)
        .mark_line(point=True, strokeWidth=2, color=colour)
        .encode(
            x=alt.X("value:Q", scale=alt.Scale(type="log"), title=title, axis=axis),
            y=alt.Y(f"{field}:Q", scale=alt.Scale(type="log"), title=label),
        )
        for field, label, colour in _PANELS
    ]
    chart: alt.HConcatChart = alt.hconcat(*panels).properties(title="What does a larger federation cost?")
    return chart
