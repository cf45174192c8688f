"""Scores of contests on disk: everything as JSON, a table as CSV and Markdown, and a chart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import altair as alt

from nestegg.bench.contest import Contest, Entry
from nestegg.bench.machine import machine
from nestegg.files import write_atomically
from nestegg.report.charts import PALETTE, save_charts
from nestegg.report.markup import as_csv, as_markdown

COLUMNS = ("work", "simulator", "setting", "seconds a round", "times ours", "memory", "difference", "of the machine")
_SHAPES = ("diamond", "circle", "square", "triangle-up", "cross", "triangle-down")


def score_row(contest: Contest, entry: Entry) -> tuple[str, ...]:
    """An entry as a line of the table. Only our own share of the machine is told: others do the same operations."""
    own = entry.name.startswith("nestegg")
    rate = contest.rate["bf16" if "bf16" in entry.name else "fp32"]
    return (
        contest.work,
        entry.name if own else f"{entry.name} {entry.version}",
        entry.setting,
        f"{entry.median:.3f}",
        f"{contest.ratio(entry):.2f}",
        f"{entry.memory / 1e6:,.0f} MB",
        f"{entry.difference:.0e}" if entry is not contest.entries[0] else "",
        f"{contest.operations / entry.median / rate:.0%}" if own else "",
    )


def save_scores(folder: Path, contests: Sequence[Contest]) -> None:
    """Write all there is to know into a folder."""
    facts = {"machine": machine(), "works": [asdict(contest) for contest in contests]}
    write_atomically(folder / "bench.json", json.dumps(facts, indent=1) + "\n")
    rows = [score_row(contest, entry) for contest in contests for entry in contest.entries]
    write_atomically(folder / "bench.csv", as_csv(COLUMNS, rows))
    missing = [f"{c.work}: {reason}" for c in contests for reason in c.missing.values()]
    write_atomically(folder / "bench.md", "\n".join([as_markdown(COLUMNS, rows), machine() + ".", *missing]) + "\n")
    save_charts(folder, {"bench": ratio_chart(contests)})


def ratio_chart(contests: Sequence[Contest]) -> alt.Chart:
    """How much longer do others take for the same round? Ours is 1."""
    rows = [
        {"work": contest.work, "simulator": entry.name, "ratio": contest.ratio(entry)}
        for contest in contests
        for entry in contest.entries
    ]
    names = list(dict.fromkeys(str(line["simulator"]) for line in rows))
    colours = alt.Scale(domain=names, range=[PALETTE[i % len(PALETTE)] for i in range(len(names))])
    shapes = alt.Scale(domain=names, range=[_SHAPES[i % len(_SHAPES)] for i in range(len(names))])
    title = "How much longer do others take for the same round?"
    chart: alt.Chart = (
        alt.Chart(alt.Data(values=rows), title=title, width=560, height=44 * len(contests))
        .mark_point(filled=True, size=110, opacity=1.0)
        .encode(
            x=alt.X("ratio:Q", scale=alt.Scale(type="log"), title="seconds a round, as a multiple of nestegg's"),
            y=alt.Y("work:N", sort=[contest.work for contest in contests], title=None),
            color=alt.Color("simulator:N", sort=names, scale=colours, title=None),
            shape=alt.Shape("simulator:N", sort=names, scale=shapes, title=None),
        )
    )
    return chart
