"""Pages that people write about outcomes: what finished cells decide on them is made anew, the words stay."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from pathlib import Path

from nestegg.errors import InputError
from nestegg.experiments.answers import answered, asked_pictures
from nestegg.experiments.outcomes import Outcome
from nestegg.experiments.pages import RULES, markdown
from nestegg.experiments.views import charts
from nestegg.files import make_folder, write_atomically
from nestegg.report.charts import draw_charts

FRONT, RULES_PAGE = "results.md", "reading.md"  # the rules' page is beside those of outcomes
PAGES, PICTURES = Path("results"), Path("images", "results")
_AROUND = f"[All results](../{FRONT}) · [How to read this page]({RULES_PAGE})"


def refresh(docs: Path, outcomes: Sequence[Outcome]) -> None:
    """Make the results' pages and pictures in a folder anew; an outcome that has no page gets one."""
    pictures = asked_pictures(_text(docs / FRONT), {outcome.name: outcome for outcome in outcomes})
    for outcome in outcomes:
        pictures |= charts(outcome)
    files = refreshed(docs, outcomes, pictures)
    drawn = draw_charts(pictures)
    files |= {docs / PICTURES / f"{name}.svg": picture.svg for name, picture in drawn.items()}
    for path, text in files.items():
        make_folder("results", path.parent)
        write_atomically(path, text)


def refreshed(docs: Path, outcomes: Sequence[Outcome], drawn: Container[str]) -> dict[Path, str]:
    """Return what the pages should say: the first, that of the rules, and one for each outcome.

    Args:
        docs: the folder with the pages as they are.
        outcomes: that have a page each.
        drawn: names of those that have a picture.

    Raises:
        InputError: a page does not have one place for its block, or asks for a number that no outcome has.
    """
    rules = docs / PAGES / RULES_PAGE
    pages = {docs / FRONT: _text(docs / FRONT), rules: with_block(_text(rules), "rules", "\n\n".join(RULES))}
    for outcome in outcomes:
        path, title = docs / PAGES / f"{outcome.name}.md", f"# {outcome.experiment.title}\n"
        new = f"{title}\n<!-- {outcome.name} -->\n<!-- /{outcome.name} -->\n"
        _, _, words = (_text(path) if path.exists() else new).partition("\n")
        link = (Path("..") / PICTURES / outcome.name).as_posix() if outcome.name in drawn else None
        block = markdown(outcome, f"{link}.svg" if link else None)
        pages[path] = with_block(title + words, outcome.name, f"{_AROUND}\n\n{block}")
    known = {outcome.name: outcome for outcome in outcomes}
    return {path: answered(text, known) for path, text in pages.items()}


def with_block(text: str, name: str, block: str) -> str:
    r"""Return a page with something else between `<!-- NAME -->` and `<!-- /NAME -->`.

    >>> with_block("Before.\n<!-- costs -->\n3\n<!-- /costs -->\nAfter.", "costs", "4")
    'Before.\n<!-- costs -->\n4\n<!-- /costs -->\nAfter.'

    Raises:
        InputError: there is not exactly one place for it.
    """
    parts = re.split(rf"(<!-- /?{name} -->)", text)
    if parts[1::2] != [f"<!-- {name} -->", f"<!-- /{name} -->"]:
        raise InputError(f"The page must have one block for {name}, from <!-- {name} --> to <!-- /{name} -->.")
    before, begin, _, end, after = parts
    return f"{before}{begin}\n{block.strip()}\n{end}{after}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
