"""The frame of every page: one file that needs no network, with a summary, contents and interactive charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from nestegg.report.charts import Picture
from nestegg.report.scripts import chart_scripts

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --card: #f6f8fa; --page: #fff;
  --accent: #0072b2; --warn: #fff3cd; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --card: #161b22; --page: #0d1117; --accent: #56b4e9; --warn: #3a2e05; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  max-width: 62rem; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
a { color: var(--accent); } p { margin: .5rem 0; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
.summary { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .75rem 1.25rem; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: .5rem 0; }
.facts b { display: block; font-size: 1.5rem; line-height: 1.2; }
nav ol { columns: 2 18rem; padding-left: 1.3rem; margin: .75rem 0; }
.note { background: var(--warn); padding: .5rem 1rem; border-left: 4px solid #e69f00; }
figure { margin: 1rem 0; overflow-x: auto; } figure svg { max-width: 100%; height: auto; }
figure svg text { fill: var(--ink) !important; } figure .role-axis-grid line { stroke: var(--line) !important; }
figure .role-axis-domain line, figure .role-axis-tick line { stroke: var(--soft) !important; }
figure .background { stroke: var(--line) !important; }
figure [class*=role-legend] .background { stroke: none !important; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .75rem 0; font-size: .92rem; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  white-space: nowrap; }
td small { display: block; color: var(--soft); font-size: .87em; }
td:first-child small { white-space: normal; max-width: 32rem; }
th { color: var(--soft); font-weight: 600; white-space: normal; min-width: 5rem; }
th:first-child, td:first-child { text-align: left; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .5em; }
code { font: .88em ui-monospace, monospace; overflow-wrap: anywhere; }
#vg-tooltip-element { font: 13px system-ui, sans-serif; }
@media print { body { max-width: none; padding: 0; font-size: 11pt; } nav { display: none; }
  .wide, figure { overflow: visible; } figure svg { max-height: 22cm; }
  table { font-size: 8pt; } th, td { padding: .2rem .35rem; white-space: normal; }
  figure, tr, thead, .summary { break-inside: avoid; } h2 { break-after: avoid; } a { color: inherit; } }
"""

# Drawings are in the page as SVG already; where scripts run, charts that answer to the mouse take their place.
_SCRIPT = """
for (const source of document.querySelectorAll("script[data-chart]")) {
  const place = document.getElementById(source.dataset.chart);
  vegaEmbed(place, JSON.parse(source.textContent), { renderer: "svg", actions: false })
    .then(() => { place.dataset.drawn = "interactive"; }).catch(console.error);
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
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>'
        f'<div class="summary">{summary}</div><nav aria-label="Contents"><ol>{contents}</ol></nav>'
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
    title = picture.definition.get("title", "")
    title = escape(str(title["text"] if isinstance(title, dict) else title))
    return (
        f'<figure aria-label="{title}"><div id="{name}">{picture.svg}</div></figure>'
        f'<script type="application/json" data-chart="{name}">{source}</script>'
    )
