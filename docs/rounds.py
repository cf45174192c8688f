"""Refresh the tables and the picture of rounds in docs/performance.md from what was measured: `python docs/rounds.py`.

`results/bench` has a `bench.json` of `nestegg bench` for each instruction set, renamed after it.
"""

from __future__ import annotations

import json
from pathlib import Path

from nestegg.bench.contest import Contest, Entry
from nestegg.bench.scores import ratio_chart
from nestegg.experiments.written import with_block
from nestegg.files import write_atomically
from nestegg.report.charts import draw_charts
from nestegg.report.markup import as_markdown

DOCS = Path(__file__).parent
MEASURED = DOCS.parent / "results" / "bench"
PAGE, PICTURE = DOCS / "performance.md", DOCS / "images" / "bench.svg"


def refreshed(page: str) -> str:
    """Return the page with a table of ratios for each instruction set."""
    for file in sorted(MEASURED.glob("*.json")):
        page = with_block(page, f"rounds-{file.stem}", rounds_table(file))
    return page


def rounds_table(file: Path) -> str:
    """Return, for each piece of work, our seconds a round and how many times as long each peer took."""
    works = contests(file)
    peers = list(dict.fromkeys(entry.name for work in works for entry in work.entries[1:]))
    rows = []
    for work in works:
        times = {entry.name: f"{work.ratio(entry):.2f}×" for entry in work.entries[1:]}
        share = work.operations / work.entries[0].median / work.rate["fp32"]
        memory = f"{work.entries[0].memory / 1e6:,.0f} MB"
        rows.append(
            (work.work, f"{work.entries[0].median:.3f} s", *(times.get(p, "–") for p in peers), memory, f"{share:.0%}")
        )
    table = as_markdown(("work", "nestegg, a round", *peers, "memory", "of the machine"), rows)
    return f"{table}\n\n{json.loads(file.read_text())['machine']}."


def contests(file: Path) -> list[Contest]:
    """Return what `nestegg bench` saved as `bench.json`."""
    works = json.loads(file.read_text())["works"]
    return [Contest(**{**work, "entries": [Entry(**entry) for entry in work["entries"]]}) for work in works]


if __name__ == "__main__":  # collecting doctests imports this file
    write_atomically(PAGE, refreshed(PAGE.read_text(encoding="utf-8")))
    write_atomically(PICTURE, draw_charts({"bench": ratio_chart(contests(MEASURED / "avx512.json"))})["bench"].svg)
