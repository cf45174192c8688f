"""Tables for other programs, for people who read Markdown, and for pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def as_csv(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated, with a line of heads."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    return text.getvalue()


def as_markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of GitHub's Markdown; lines of a cell stay lines, and what a cell says after its first is small."""

    def cell(text: str) -> str:
        first, *others = text.replace("|", "\\|").split("\n")
        return f"{first}<br><small>{'<br>'.join(others)}</small>" if others else first

    lines = (heads, ["---"] * len(heads), *rows)
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def as_html(heads: Sequence[str], rows: Iterable[Sequence[str]], colours: Sequence[str] = ()) -> str:
    """A table that scrolls by itself where it is wider than the page, by keyboard too.

    Rows may have a colour, as lines in charts do; what a cell says after its first line is small.
    """

    def cell(text: str, dot: str = "") -> str:
        first, *others = text.split("\n")
        return f"<td>{dot}{escape(first)}{''.join(f'<small>{escape(line)}</small>' for line in others)}</td>"

    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    lines = []
    for number, (first, *others) in enumerate(rows):
        dot = f'<i class="dot" style="background: {colours[number]}"></i>' if number < len(colours) else ""
        lines.append(cell(first, dot) + "".join(map(cell, others)))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    region = f'class="wide" role="region" tabindex="0" aria-label="Table: {escape(", ".join(heads))}"'
    return f"<div {region}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
