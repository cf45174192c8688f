"""What terms.json says of a run on Flower: all that was agreed on, in words of its own, for readers without Flower."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from nestegg.checks import one_of
from nestegg.configuration.config import Side
from nestegg.errors import InputError
from nestegg.planning.plan_file import parse_plan
from nestegg.schema import Section, read

if TYPE_CHECKING:
    from nestegg.planning import Plan

TERMS = "terms.json"  # what describes a run on Flower in its folder
FORMAT = "nestegg-terms/2"  # 1 added noise in floating point


class TermsRecord(Section):
    """The fields of terms, as `nestegg.flower.terms.Terms` says what they mean; the plan is its own JSON."""

    format: str
    run: str
    plan: str
    clipping: str
    colluders: int
    clip_scale: list[float]
    note: str | None = None
    side: Side = Side()

    def parsed_plan(self) -> Plan:
        """Return the plan, if it is whole."""
        return parse_plan(self.plan, "terms: plan")


def terms_digest(text: str, plan: str) -> str:
    """Return SHA-256 of terms, with the plan by its own digest: what clients hold on to, and checkpoints name."""
    return hashlib.sha256(json.dumps(json.loads(text) | {"plan": plan}, sort_keys=True).encode()).hexdigest()


def parse_terms(text: str) -> TermsRecord:
    """Return what terms say that a stranger may have written."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"terms are not JSON: {error}.") from None
    record = read(TermsRecord, content, "terms")
    if record.format == "nestegg-terms/1":
        raise InputError(
            f"terms of run {record.run!r}: format = {record.format!r} is of an earlier nestegg, whose noise was in "
            "floating point; such a run must be ended by that version, or begun anew in another folder."
        )
    one_of("terms: format", record.format, (FORMAT,))
    return record


def read_terms(folder: Path) -> tuple[TermsRecord, str]:
    """Return what the terms in a folder say, and their digest."""
    path = folder / TERMS
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
    try:
        record = parse_terms(text)
        return record, terms_digest(text, record.parsed_plan().digest)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
