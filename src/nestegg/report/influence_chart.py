"""How much of a round's noise is left in the end, as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt

from nestegg.files import write_atomically
from nestegg.report.charts import PALETTE, draw_charts


def write_influence_chart(path: Path, influence: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """Write a measured curve with its uncertainty as SVG."""
    rows = [
        {"round": t, "left": w, "low": below, "high": above}
        for t, (w, below, above) in enumerate(zip(influence, low, high, strict=True), 1)
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("round:Q", title="round"))
    band = base.mark_area(opacity=0.25, color=PALETTE[0]).encode(
        y=alt.Y("low:Q", title="share of its noise in the final model"), y2="high:Q"
    )
    line = base.mark_line(color=PALETTE[0], point=True).encode(y="left:Q")
    chart = alt.layer(band, line).properties(title="How much of a round's noise is left?", width=600, height=280)
    write_atomically(path, draw_charts({"influence": chart}, None)["influence"].svg)
