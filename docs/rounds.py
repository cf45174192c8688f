"""Refresh the tables and the picture of rounds in docs/performance.md from what was measured: `python docs/rounds.py`.

`results/bench` has a `bench.json` of `nestegg bench` for each instruction set, named after it.
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
# How many times as long as ours a round of others should take, by work: set before any of it was reached.
AIMS: dict[str, dict[str, float]] = {
    "mlp": {"plain PyTorch": 30, "pfl": 17, "Flower": 30, "JAX, vmap": 1.3, "JAX, blocks": 1.3},
    "cnn": {"plain PyTorch": 1.4, "pfl": 1.4, "Flower": 1.4},
    "uneven": {"plain PyTorch": 15, "pfl": 10, "Flower": 20, "JAX, vmap": 2, "JAX, blocks": 2},
    "many": {"plain PyTorch": 20, "pfl": 15, "Flower": 100, "JAX, vmap": 1.3, "JAX, blocks": 1.2},
    "resnet20": {"pfl": 1.3},
    "softmax": {"JAX, vmap": 1.3, "JAX, blocks": 1.3},
    "tanh-cnn": {"JAX, vmap": 1.3, "JAX, blocks": 1.3},
}


def refreshed(page: str) -> str:
    """Return the page with what the works are, and a table of ratios for each instruction set."""
    files = sorted(MEASURED.glob("*.json"))
    works = "\n".join(f"- `{work.work}`: {work.what}" for work in contests(files[0]))
    page = with_block(page, "rounds-works", works)
    for file in files:
        page = with_block(page, f"rounds-{file.stem}", rounds_table(file))
    return page


def rounds_table(file: Path) -> str:
    """Return, for each piece of work, our seconds a round and how many times as long each peer took."""
    works = contests(file)
    peers = list(dict.fromkeys(entry.name for work in works for entry in work.entries[1:]))
    rows = []
    for work in works:
        ours, *others = work.entries
        ratios = {entry.name: _beside_aim(work, entry) for entry in others}
        share = f"{work.operations / ours.median / work.rate['fp32']:.0%}"
        times = [ratios.get(peer, "–") for peer in peers]
        rows.append((f"`{work.work}`", f"{ours.median:.3f} s", *times, f"{ours.memory / 1e6:,.0f} MB", share))
    table = as_markdown(("work", "nestegg, a round", *peers, "memory", "of the machine"), rows)
    return f"{table}\n{json.loads(file.read_text(encoding='utf-8'))['machine']}."


def contests(file: Path) -> list[Contest]:
    """Return what `nestegg bench` saved as `bench.json`."""
    works = json.loads(file.read_text(encoding="utf-8"))["works"]
    return [Contest(**{**work, "entries": [Entry(**entry) for entry in work["entries"]]}) for work in works]


def _beside_aim(work: Contest, entry: Entry) -> str:
    aim = AIMS[work.work].get(entry.name)
    return f"{work.ratio(entry):.2f}×" + (f"<br><small>≥ {aim:g}</small>" if aim is not None else "")


if __name__ == "__main__":  # collecting doctests imports this file
    write_atomically(PAGE, refreshed(PAGE.read_text(encoding="utf-8")))
    write_atomically(PICTURE, draw_charts({"bench": ratio_chart(contests(MEASURED / "avx512.json"))})["bench"].svg)
