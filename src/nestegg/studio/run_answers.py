"""What the page of one run shows: headline numbers, charts, groups, its audit, and which files there are to open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nestegg.errors import InputError
from nestegg.planning import LABELS
from nestegg.report.audit_page import kept_audit
from nestegg.report.charts import definition_of, spending_chart
from nestegg.report.run_charts import clip_norm_chart, quality_charts
from nestegg.runs.folder import RunFolder
from nestegg.studio.place import Place
from nestegg.studio.runs import Run

# What may be opened, and what it is; pages have their scripts in them.
FILES = {
    "report.html": "text/html",
    "audit.html": "text/html",
    "comparison.html": "text/html",
    "plan.json": "application/json",
    "summary.json": "application/json",
}
_ACCOUNT = ("epsilon", "epsilon_earlier", "epsilon_here", "epsilon_spent", "epsilon_left")


def run_answer(place: Place, run: Run) -> dict[str, Any]:
    """Return all that the page of a run shows."""
    folder = RunFolder(place.inside(run.path))
    row = run.row(folder)
    try:
        charts = _charts(run)
        accounts = _accounts(run.summary) if row["state"] in ("finished", "stopped") else []
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise InputError(f"{folder.path} is damaged: its rounds or its summary cannot be shown.") from None
    return {
        **row,
        "clients": run.plan.clients,
        "delta": run.plan.delta,
        "accountant": LABELS[run.plan.accountant],
        "digest": run.plan.digest,
        "ledger_run": run.about.run,
        "accounts": accounts,
        "audit": _audit(folder),
        "files": [name for name in FILES if (folder.path / name).is_file()],
        "charts": charts,
    }


def file_in(place: Place, path: str, name: str) -> bytes:
    """Return a file that may be opened.

    Raises:
        InputError: it is none of those, it leads elsewhere, or it is not there.
    """
    if name not in FILES:
        raise InputError(f"name = {name!r} must be one of {', '.join(FILES)}.")
    file = place.file(f"{path}/{name}")
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{path}/{name} cannot be read: {error.strerror}.") from None


def _charts(run: Run) -> dict[str, Any]:
    charts = quality_charts(run.rounds)
    if run.plan.is_private:
        charts["spending"] = spending_chart(run.plan)
    if run.plan.about.learns_clip_norm or any("below" in line.get("side", {}) for line in run.rounds):
        unit = run.about.pace.clip_unit if run.about.pace is not None else "update"
        charts |= clip_norm_chart(run.rounds, unit)
    return {name: definition_of(chart) for name, chart in charts.items()}


def _accounts(summary: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Where each group's tightest member stood when the run ended, over all its runs."""
    groups = summary.get("groups", ()) if summary is not None else ()
    found = [{"group": one["name"], **{key: one.get(key) for key in (*_ACCOUNT, "account")}} for one in groups]
    return [one for one in found if one["epsilon"] is not None]


def _audit(folder: RunFolder) -> str | None:
    """What came of the last audit, in a sentence."""
    content = kept_audit(folder.path)
    if content is None:
        return "its file is damaged." if (folder.path / "audit.json").exists() else None
    refuted = sum(bool(one["refutes"]) for one in content["findings"])
    attacks = len(content["findings"])
    if refuted:
        return f"The promise is refuted by {refuted} of {attacks} attacks."
    return f"The promise is not refuted by any of {attacks} attacks."
