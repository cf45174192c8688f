"""Refresh the tables in docs/results.md from the cells under results/: `python docs/results.py`.

Everything between `<!-- NAME -->` and `<!-- /NAME -->` is the experiment NAME at cpu scale; the words around it are
written by hand. Nothing is trained.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from nestegg.experiments.cells import Store
from nestegg.experiments.definition import load, names
from nestegg.experiments.figures import charts
from nestegg.experiments.outcomes import Outcome, outcome_of
from nestegg.experiments.outputs import RULES, markdown, write_outcome

ROOT = Path(__file__).parent.parent
PAGE, PICTURES = ROOT / "docs" / "results.md", ROOT / "docs" / "images" / "results"


def outcomes() -> dict[str, Outcome]:
    """All experiments at cpu scale, from the cells that are committed."""
    store = Store(ROOT / "results")
    return {name: outcome_of(name, load(name), "cpu", load(name).seeds, store) for name in names()}


def refreshed(text: str, found: dict[str, Outcome]) -> str:
    """The page with every block made anew."""
    blocks = {"rules": "\n\n".join(RULES)}
    for name, outcome in found.items():
        picture = f"![{outcome.experiment.question}](images/results/{name}.svg)\n\n" if charts(outcome) else ""
        blocks[name] = picture + markdown(outcome)
    for name, block in blocks.items():
        marks = rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)"
        text, count = re.subn(
            marks, lambda mark, block=block: f"{mark[1]}{block.strip()}{mark[2]}", text, flags=re.DOTALL
        )
        if count != 1:
            sys.exit(f"{PAGE} must have one block for {name}; it has {count}.")
    return text


def main() -> None:
    """Write the page and its pictures."""
    found = outcomes()
    PAGE.write_text(refreshed(PAGE.read_text(), found))
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, outcome in found.items():
            write_outcome(Path(folder), outcome)
            drawn = Path(folder) / f"{name}.svg"
            if drawn.exists():
                (PICTURES / drawn.name).write_bytes(drawn.read_bytes())


if __name__ == "__main__":
    main()
