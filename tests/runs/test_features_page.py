"""docs/features.md: every block of it runs, in its order and in one folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run

PAGE = (Path(__file__).parents[2] / "docs" / "features.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for kind, text in BLOCKS:
        if kind == "toml":
            Path("config.toml").write_text(text)
            done = run("run", "config.toml", "--out", "run", "--json")
            assert done.code == 0, done.err
            assert json.loads(done.out)["final_accuracy"] > 60.0
        else:
            assert kind == "python"
            exec(compile(text, "docs/features.md", "exec"), namespace)
    assert {kind for kind, _ in BLOCKS} == {"toml", "python"}
    assert namespace["reports"][-1].accuracy > 0.3
