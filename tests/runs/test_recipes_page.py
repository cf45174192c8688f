"""docs/recipes.md: every block of it runs, prints what the page says, and its rules are those of the finished cells."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bench import rules
from tests.conftest import Run

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def lines(text: str) -> list[str]:
    """The lines of a text that are not empty, spaces evened out."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_every_block_of_the_page_runs_and_prints_what_it_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    printed = ""
    for kind, text in BLOCKS:
        if name := re.match(r"# (\w+\.toml)\n", text):
            Path(name.group(1)).write_text(text)
        elif kind == "python":
            exec(compile(text, "docs/recipes.md", "exec"), namespace)
            printed = capsys.readouterr().out
        elif kind == "sh":
            for command in text.splitlines():
                done = run(*shlex.split(command)[1:])
                assert done.code == 0, (command, done.err)
                printed = done.out
        else:
            assert kind == "text"
            assert "\n".join(lines(text)) in "\n".join(lines(printed))
    assert {kind for kind, _ in BLOCKS} == {"toml", "sh", "python", "text"}


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("table", [rules.noise_table, rules.clip_table, rules.proxy_table, rules.rate_table])
def test_the_tables_are_those_of_the_finished_cells(table: Any) -> None:
    assert "\n".join(table()) in PAGE
