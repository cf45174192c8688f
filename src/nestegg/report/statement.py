"""A privacy statement: who is promised what by a run, as plain data. How it is drawn is another matter."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from nestegg.errors import InputError

FORMAT = "nestegg-statement/1"


@dataclass(frozen=True)
class Statement:
    """All that a statement says, as JSON-ready values. It names no client.

    Attributes:
        day: on which it was made.
        run: name, method, dataset, model, rounds done and planned, clients, the day it began, and its note.
        warnings: sentences that whoever signs must have read.
        promise: δ, accountant, unit and adjacency.
        groups: for each, budget and spending in numbers and words, also against attackers who know more.
        plan: digest, digests of earlier plans, and the judge's verdict.
        adaptivity: whether plans may depend on earlier results, in sentences.
        trusted: who is trusted with what, in sentences.
        not_covered: in sentences.
        audit: what came of the last audit; None where there was none.
        ledger: head, length, and accounts of the run's members by group; None where no ledger could be read.
        other_runs: of the same clients.
        changes: of the members' budgets, with reason and author, and how many clients each is of.
        withdrawals: of members, by day.
        versions: of the programs that made the statement.
        files: SHA-256 of the run's files, by name.
    """

    day: str
    run: dict[str, Any]
    warnings: list[str]
    promise: dict[str, Any]
    groups: list[dict[str, Any]]
    plan: dict[str, Any]
    adaptivity: list[str]
    trusted: list[str]
    not_covered: list[str]
    audit: dict[str, Any] | None
    ledger: dict[str, Any] | None
    other_runs: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    withdrawals: list[dict[str, Any]]
    versions: dict[str, str]
    files: dict[str, str]

    @property
    def text(self) -> str:
        """The content of statement.json, which is what is signed: the same statement is the same bytes."""
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of `text`: pages name it, so that paper and file are known to belong together."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def parse_statement(text: str | bytes, source: str) -> Statement:
    """Read statement.json.

    Raises:
        InputError: it is none, or was written by something else.
    """
    try:
        content = dict(json.loads(text))
        found = content.pop("format", None)
        statement = Statement(**content)
        is_one = found == FORMAT and statement.text.encode() == (text.encode() if isinstance(text, str) else text)
    except (ValueError, TypeError, RecursionError):
        is_one = False
    if not is_one:
        raise InputError(f"{source} is not a statement: it must be a statement.json as nestegg writes it.")
    return statement
