"""What all tests of the ledger share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, as somebody whose name is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NESTEGG_AUTHOR", "the officer")
