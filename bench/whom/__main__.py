"""Train what is missing, and refresh docs/results/whom.md, its picture, and what results.md says of it.

    python -m bench.whom [--data DIR]

DIR holds the paper's four datasets; without it nothing is trained. It takes some minutes in all.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

from bench.whom.costs import Costs, all_costs, answer, budget_rows, client_rows, label_rows
from bench.whom.shares import complete, kept_shares
from nestegg.experiments.views import PADDING
from nestegg.experiments.written import with_block
from nestegg.files import write_atomically
from nestegg.report.charts import PALETTE, draw_charts
from nestegg.report.markup import as_markdown

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "results" / "whom.json"
PAGE, FRONT, PICTURE = (ROOT / "docs" / name for name in ("results/whom.md", "results.md", "images/whom.svg"))
BUDGETS = ("smallest budget", "middle", "largest budget")
_LINK = re.compile(r'\[[^\[\]]*\](?P<to>\(\S*whom\.md#[\w-]+ "(?P<asked>[^"]+)"\))')
_TABLES = (
    ("By budget", "Points that privacy costs the clients of each budget.", budget_rows,
     (*BUDGETS, "smallest − largest", "95 % interval", "the strict pay")),
    ("By label", "The label that pays least and the one that pays most, of what is recognised of it without privacy.",
     label_rows, ("least", "most")),
    ("By client", "All clients, the tenth of them who pay most in their run, and how many gain.",
     client_rows, ("all", "a tenth", "gain")),
)  # fmt: skip


def refreshed(costs: Sequence[Costs]) -> dict[Path, str]:
    """Return what the page and the front page should say."""
    parts = []
    for title, words, rows, heads in _TABLES:
        parts += [f"## {title}", words, as_markdown(("", *heads, "cells"), list(rows(costs))).strip()]
    page = with_block(PAGE.read_text(encoding="utf-8"), "whom", "\n\n".join(parts))
    texts = {PAGE: page, FRONT: FRONT.read_text(encoding="utf-8")}
    return {
        path: _LINK.sub(lambda link: f"[{answer(costs, link['asked'])}]{link['to']}", text)
        for path, text in texts.items()
    }


def chart(costs: Sequence[Costs]) -> alt.VConcatChart:
    """Draw what each label and each budget pays, row by row."""
    points: list[dict[str, Any]] = []
    for one in costs:
        points += [
            {"row": one.title, "by": "label", "who": name, "paid": round(float(paid), 3)}
            for name, paid in zip(one.names, one.by_label, strict=True)
        ]
        points += [
            {"row": one.title, "by": "budget", "who": name, "paid": round(float(paid.mean()), 3)}
            for name, paid in zip(BUDGETS, one.groups, strict=True)
        ]
    ends = [pick(float(point["paid"]) for point in points) for pick in (min, max)]
    scale = alt.Scale(domain=[ends[0] - 1, ends[1] + 1], nice=False)
    y = alt.Y("row:N", sort=[one.title for one in costs], title=None, axis=alt.Axis(labelLimit=300, grid=True))
    base = alt.Chart(alt.Data(values=points), width=480, height=alt.Step(20)).encode(
        x=alt.X("paid:Q", title="points that privacy costs", scale=scale), y=y, tooltip=["who:N", "paid:Q"]
    )
    legend = alt.Legend(title=None, orient="bottom", columnPadding=40, labelLimit=200)
    colour = alt.Color("who:N", scale=alt.Scale(domain=BUDGETS, range=PALETTE[:3]), legend=legend)
    shapes = alt.Scale(domain=BUDGETS, range=["triangle-down", "circle", "triangle-up"])
    labels = base.transform_filter("datum.by == 'label'").mark_tick(thickness=2, size=16, color="#4C4C4C")
    budgets = base.transform_filter("datum.by == 'budget'").mark_point(filled=True, size=70, opacity=0.9)
    budgets = budgets.encode(color=colour, shape=alt.Shape("who:N", scale=shapes, legend=legend))
    panels = labels.properties(title="each label"), budgets.properties(title="the clients of each budget")
    joined: alt.VConcatChart = alt.vconcat(*panels, title="Whom does privacy cost most?", padding=PADDING)
    return joined


def main() -> None:
    """Train, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of the datasets; without it nothing is trained")
    if (folder := parser.parse_args().data) is not None:
        complete(MEASURED, folder)
    costs = all_costs(kept_shares(MEASURED))
    for path, text in refreshed(costs).items():
        write_atomically(path, text)
    write_atomically(PICTURE, draw_charts({"whom": chart(costs)})["whom"].svg)


if __name__ == "__main__":
    main()
