"""What a finished run has come to, read from its folder alone: no torch, no data and no ledger are needed for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nestegg.configuration.description import CONFIG, read_description
from nestegg.errors import InputError, VerificationError
from nestegg.planning import load_plan

CHECKPOINT, SUMMARY, REPORT = "checkpoint.safetensors", "summary.json", "report.html"
# The arithmetic of rounds: 1 added noise in floating point, 2 is on a lattice. One run has one of them.
ARITHMETIC = 2


def finished_summary(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a run of a configuration that has nothing left to do or to write, or None.

    A round is in the ledger before its checkpoint counts, and all rounds are before the summary is written: where all
    files agree that every round is done, there is nothing to pay. None is no verdict: going on with the run finds out
    what is left, or what is wrong.

    >>> finished_summary(Path("nowhere")) is None
    True
    """
    if not ((folder / CONFIG).is_file() and (folder / REPORT).is_file()):
        return None
    try:
        about, plan = read_description(folder), load_plan(folder / "plan.json")
        facts = checkpoint_facts((folder / CHECKPOINT).read_bytes())
        summary = dict(json.loads((folder / SUMMARY).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError, InputError, VerificationError):
        return None
    agree = (
        facts.get("arithmetic") == ARITHMETIC
        and facts.get("config") == about.identity
        and facts.get("plan") == plan.digest
        and facts.get("round") == summary.get("rounds") == plan.rounds
        and "stopped" not in summary
    )
    return summary if agree else None


def checkpoint_facts(content: bytes) -> dict[str, Any]:
    """Return what a checkpoint's header says of it.

    Raises:
        ValueError: the header is not whole, or its tensors are not.
    """
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if len(content) != 8 + size + max(ends, default=0):
        raise ValueError("it is not whole")
    return dict(json.loads(header.get("__metadata__", {}).get("nestegg", "{}")))
