"""An audit as files: audit.json and audit.html, in a folder of its own or with the run that it is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.report.audit_page import audit_page, with_audit


def write_audit(folder: Path, content: dict[str, Any], name: str, *, is_run: bool = False) -> None:
    """Write what an audit found; in a run's folder also into its report, if it has one.

    Args:
        folder: where to write.
        content: what `Audit.to_dict` gives.
        name: of what was audited.
        is_run: whether the folder is that of a run.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}.") from None
    write_atomically(folder / "audit.json", json.dumps(content, indent=1, allow_nan=False) + "\n")
    write_atomically(folder / "audit.html", audit_page(content, name))
    report = folder / "report.html"
    if is_run and report.is_file():
        write_atomically(report, with_audit(report.read_text(encoding="utf-8"), content))
