"""A statement as PDF, by typst: no browser, no network, and the same statement gives the same bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from nestegg.extras import needs
from nestegg.report.statement import Statement
from nestegg.report.statement_parts import Block, Items, Named, lead_of, sections_of, title_of
from nestegg.report.statement_words import SIGNING_LINES, SIGNING_TEXT, SIGNING_TITLE, notes_of

_TEMPLATE = resources.files("nestegg.report").joinpath("statement.typ")


def statement_pdf(statement: Statement) -> bytes:
    """Return a statement as a PDF file that can be printed and signed by hand.

    Fonts are those that come with typst, so that it looks the same everywhere; they have Latin, Greek and Cyrillic
    letters.

    Raises:
        InputError: the extra is missing.
    """
    needs("a statement as PDF", "studio")
    import typst  # an extra; slow to import

    day = datetime.fromisoformat(statement.day).replace(tzinfo=UTC)
    return bytes(
        typst.compile(
            _TEMPLATE.read_bytes(),
            ignore_system_fonts=True,
            format="pdf",
            sys_inputs={"content": json.dumps(_content(statement))},
            timestamp=int(day.timestamp()),
        )
    )


def _content(statement: Statement) -> dict[str, Any]:
    sections = [
        {"title": section.title, "blocks": list(map(_block, section.blocks))} for section in sections_of(statement)
    ]
    return {
        "day": statement.day,
        "title": title_of(statement),
        "digest": statement.digest,
        "stamp": [statement.run["note"]] if statement.run["note"] else [],
        "notes": notes_of(statement),
        "warnings": statement.warnings,
        "lead": lead_of(statement),
        "sections": sections,
        "signing": {"title": SIGNING_TITLE, "text": SIGNING_TEXT, "lines": SIGNING_LINES},
    }


def _block(block: Block) -> dict[str, Any]:
    if isinstance(block, str):
        return {"kind": "text", "text": block}
    if isinstance(block, Items):
        return {"kind": "items", "lines": block.lines}
    if isinstance(block, Named):
        return {"kind": "named", "pairs": block.pairs}
    return {"kind": "table", "heads": block.heads, "rows": block.rows}
