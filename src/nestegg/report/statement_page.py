"""A statement as a page of the same family as reports and audits: one file, no network, no scripts."""

from __future__ import annotations

from html import escape

from nestegg.report.frame import Part, make_page
from nestegg.report.markup import as_html
from nestegg.report.statement import Statement
from nestegg.report.statement_parts import Block, Items, Named, lead_of, sections_of, title_of
from nestegg.report.statement_words import SIGNING_LINES, SIGNING_TEXT, SIGNING_TITLE, notes_of


def statement_page(statement: Statement) -> str:
    """Return a statement as HTML that can be read, printed and signed by hand."""
    large = "".join(f'<p class="large note">{escape(note)}</p>' for note in notes_of(statement))
    said = "".join(f'<p class="note">{escape(warning)}</p>' for warning in statement.warnings)
    digest = f'<p class="soft">statement.json, SHA-256 <code>{statement.digest}</code></p>'
    parts = [Part(section.title, "".join(map(_block, section.blocks))) for section in sections_of(statement)]
    lines = "".join(f"<div>{escape(line)}</div>" for line in SIGNING_LINES)
    parts.append(Part(SIGNING_TITLE, f'<p>{escape(SIGNING_TEXT)}</p><div class="sign">{lines}</div>'))
    summary = f"{large}{said}<p>{escape(lead_of(statement))}</p>{digest}"
    return make_page(title_of(statement), summary, parts)


def _block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Items):
        return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in block.lines)}</ul>"
    if isinstance(block, Named):
        return "".join(f"<p>{escape(name)} <code>{escape(value)}</code></p>" for name, value in block.pairs)
    return as_html(block.heads, block.rows)
