"""The frame of every page: one file that needs no network, with a summary, contents and interactive charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from nestegg.report.charts import Picture
from nestegg.report.gist import gist
from nestegg.report.scripts import chart_scripts

STYLE = resources.files("nestegg.report").joinpath("look.css").read_text(encoding="utf-8")

# Drawings are in the page as SVG already; where scripts run, charts that answer to the mouse take their place. They are
# as wide as the page lets them, panels of a stack too; where that is little, legends stand below.
_SCRIPT = """
for (const source of document.querySelectorAll("script[data-chart]")) {
  const place = document.getElementById(source.dataset.chart);
  const chart = JSON.parse(source.textContent), room = place.clientWidth;
  const narrow = room < 560;
  if (narrow) {
    chart.config = { ...chart.config, legend: { ...chart.config?.legend, orient: "bottom", columns: 1 } };
    if (chart.title) chart.config.title = { ...chart.config.title, fontSize: 13, limit: room, subtitleFontSize: 10 };
  }
  for (const panel of chart.vconcat ?? []) panel.width = Math.min(600, room - (narrow ? 70 : 260));
  if (chart.mark || chart.layer) {  // Vega-Lite fits no others
    chart.width = "container";
    chart.autosize = { type: "fit-x", contains: "padding" };
  }
  vegaEmbed(place, chart, { renderer: "svg", actions: false })
    .then(() => { place.dataset.drawn = "interactive"; })
    .catch(error => { place.dataset.drawn = "failed"; console.error(error); });
}
"""


@dataclass(frozen=True)
class Part:
    """A part of a page: its heading, charts, and HTML below them."""

    title: str
    body: str = ""
    pictures: Sequence[Picture] = ()


def make_page(title: str, summary: str, parts: Sequence[Part]) -> str:
    """A whole page; the summary is HTML."""
    contents = "".join(f'<li><a href="#part-{i}">{escape(part.title)}</a></li>' for i, part in enumerate(parts, 1))
    sections = "".join(_section(i, part) for i, part in enumerate(parts, 1))
    interactive = any(part.pictures for part in parts)
    scripts = f"<script>{chart_scripts()}</script><script>{_SCRIPT}</script>" if interactive else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head><body><header><h1>{escape(title)}</h1>'
        f'<div class="summary">{summary}</div></header><nav aria-label="Contents"><ol>{contents}</ol></nav>'
        f"<main>{sections}</main>{scripts}</body></html>\n"
    )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """A few numbers, large, each with what it is."""
    return f'<div class="facts">{"".join(f"<div><b>{escape(b)}</b>{escape(a)}</div>" for a, b in pairs)}</div>'


def _section(number: int, part: Part) -> str:
    figures = "".join(_figure(f"chart-{number}-{i}", picture) for i, picture in enumerate(part.pictures, 1))
    return f'<section id="part-{number}"><h2>{escape(part.title)}</h2>{figures}{part.body}</section>'


def _figure(name: str, picture: Picture) -> str:
    definition = {**picture.definition, "background": "transparent"}
    source = json.dumps(definition).replace("<", "\\u003c")  # nothing in it may end the script early
    told = escape(gist(picture.definition))
    return (
        f'<figure role="img" aria-label="{told}"><div id="{name}">{picture.svg}</div></figure>'
        f'<script type="application/json" data-chart="{name}">{source}</script>'
    )
