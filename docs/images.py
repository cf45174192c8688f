"""Draw the pictures of README and docs from the program's real output: `python docs/images.py`."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from nestegg.cli import tables
from nestegg.configuration.config import load_config
from nestegg.configuration.participants import make_plan, pace_of_config, with_method
from nestegg.planning import judged
from nestegg.planning.registry import RIVALS
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


if __name__ == "__main__":
    main()
