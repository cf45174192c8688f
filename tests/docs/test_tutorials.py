"""Tutorials and how-to pages: every block of them runs, in order and in one folder, and prints what the page shows."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import Run
from .conftest import ROOT
from .pages import Player, agrees, blocks_of

PAGES = [
    *(f"tutorials/{name}.md" for name in ("first-federation", "flower", "privacy-officer", "your-own-data")),
    *(f"how-to/{name}.md" for name in ("audits", "epsilon", "lifetime-budgets", "nothing-learns", "values")),
]


@pytest.fixture
def player(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Player]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NESTEGG_AUTHOR", "Grace")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Player(run)
    for name in [name for name in sys.modules if name.partition(".")[0] == "digits_app"]:
        del sys.modules[name]  # another test may have an app of that name


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_runs(page: str, player: Player) -> None:
    if shutil.which("ssh-keygen") is None and "ssh-keygen" in (ROOT / "docs" / page).read_text():
        pytest.skip("no ssh-keygen here")
    player.play(page)


def test_all_tutorials_and_how_to_pages_are_run() -> None:
    found = [path for folder in ("tutorials", "how-to") for path in (ROOT / "docs" / folder).glob("*.md")]
    with_blocks = {str(path.relative_to(ROOT / "docs")) for path in found if "```" in path.read_text()}
    assert with_blocks == {*PAGES}


def test_another_output_than_the_shown_one_is_noticed() -> None:
    assert agrees("ε = 3.10 of … 4", "spent ε = 3.1 of\n these 4", 1e-9)
    assert not agrees("ε = 3.10", "ε = 3.2", 1e-9)
    assert agrees("ε = 3.10", "ε = 3.2", 0.2)
    assert not agrees("a … b", "b … a", 1.0)
    assert [block.kind for block in blocks_of(PAGES[0])][:3] == ["console", "sh", "text"]
