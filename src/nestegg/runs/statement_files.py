"""A statement as files: statement.json, which can be signed, and pages for people."""

from __future__ import annotations

from pathlib import Path

from nestegg.errors import InputError
from nestegg.extras import needs
from nestegg.files import make_folder, write_atomically
from nestegg.report.statement import Statement
from nestegg.report.statement_page import statement_page
from nestegg.report.statement_pdf import statement_pdf
from nestegg.runs.folder import at_midnight
from nestegg.runs.signing import sign_file, signature_of

NAME = "statement.json"


def write_statement(
    statement: Statement,
    folder: Path,
    *,
    html: Path | None = None,
    pdf: Path | None = None,
    key: Path | None = None,
) -> list[Path]:
    """Write a statement, and sign it if a key is given; returns what was written. Files bear the time of midnight.

    Args:
        statement: what to write.
        folder: of statement.json, its signature, and of pages without a place of their own.
        html: the page, if not statement.html in the folder.
        pdf: the same as PDF, if not statement.pdf in the folder, where it is left out if typst is missing.
        key: by which to sign.

    Raises:
        InputError: a signed statement would be replaced, or a file cannot be written.
    """
    file, text = folder / NAME, statement.text
    _check_unsigned(file, text, signing=key is not None)
    drawn = None if pdf is None and not _can_draw_pdf() else statement_pdf(statement)
    make_folder("folder", folder)
    content: dict[Path, str | bytes] = {file: text, html or folder / "statement.html": statement_page(statement)}
    if drawn is not None:
        content[pdf or folder / "statement.pdf"] = drawn
    for path, one in content.items():
        write_atomically(path, one)
    written = [*content, *([sign_file(file, key)] if key is not None else [])]
    for path in written:
        at_midnight(path)
    return written


def _check_unsigned(file: Path, text: str, *, signing: bool) -> None:
    """Refuse to replace what somebody has signed, or the signature."""
    signature = signature_of(file)
    if not signature.exists():
        return
    if signing or not file.is_file() or file.read_bytes() != text.encode():
        raise InputError(f"{file} is signed, and is not replaced: give another --out, or remove {signature}.")


def _can_draw_pdf() -> bool:
    try:
        needs("a statement as PDF", "studio")
    except InputError:
        return False
    return True
