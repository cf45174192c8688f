"""Draw the pictures of README and docs from the program's real output: `python docs/images.py`."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from nestegg.bench.contest import Contest, Entry
from nestegg.bench.scores import ratio_chart
from nestegg.cli import tables
from nestegg.configuration.config import load_config
from nestegg.configuration.participants import make_plan, pace_of_config, with_method
from nestegg.planning import judged
from nestegg.planning.registry import RIVALS
from nestegg.report.charts import draw_charts
from nestegg.report.plan_chart import write_plan_chart

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Record what `nestegg plan examples/fashion-mnist.toml` prints and draws, as SVG that needs no network."""
    console = Console(record=True, width=92, file=StringIO(), force_terminal=True, color_system="truecolor")
    config = load_config(ROOT / "examples" / "fashion-mnist.toml")
    console.print("[bold green]$[/] nestegg plan examples/fashion-mnist.toml", highlight=False)
    tables.show(console, judged(make_plan(config)))
    svg = console.export_svg(title="nestegg plan", theme=MONOKAI)
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "DejaVu Sans Mono")
    folder = ROOT / "docs" / "images"
    folder.mkdir(exist_ok=True)
    (folder / "plan.svg").write_text(svg)
    plans = {name: make_plan(with_method(config, name)) for name in reversed(RIVALS)}  # optimal first
    write_plan_chart(folder / "when-to-spend.svg", plans["optimal"], plans, pace_of_config(config))
    rounds = ratio_chart(contests((ROOT / "docs" / "performance.md").read_text()))
    (folder / "bench.svg").write_text(draw_charts({"bench": rounds})["bench"].svg)


def contests(page: str) -> list[Contest]:
    """Return the contests with AVX-512 that the tables of the page on performance tell of, by their ratios alone."""
    found: dict[str, Contest] = {}
    tables_of_rounds = page.split("## A round, beside other simulators")[1].split("What was aimed at")[0]
    for line in tables_of_rounds.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) < 5 or not re.fullmatch(r"[\d.]+", cells[3]):
            continue
        is_of_convolutions = re.fullmatch(r"[\d.]+", cells[2])  # its table has no settings
        name = re.sub(r" \d[\d.]*\d(\+cpu)?$", "", cells[1])
        entry = Entry(name, "", "", 0, 0.0, [float(cells[3] if is_of_convolutions else cells[4])])
        found.setdefault(cells[0], Contest(cells[0], "", 0.0)).entries.append(entry)
    return list(found.values())


if __name__ == "__main__":
    main()
