"""docs/side-statistics.md: every block of it runs, and the table is what the formulas say."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run

PAGE = (Path(__file__).parents[2] / "docs" / "side-statistics.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for kind, text in BLOCKS:
        if kind == "toml":
            Path("config.toml").write_text(text)
            done = run("run", "config.toml", "--out", "run", "--json")
            assert done.code == 0, done.err
            planned = run("plan", "config.toml")
            assert "Side statistics take 11.00% of the square of every clip norm" in " ".join(planned.out.split())
        else:
            exec(compile(text, "docs/side-statistics.md", "exec"), namespace)
    lines = [json.loads(line) for line in Path("run/rounds.jsonl").read_text().splitlines()]
    names = ("below", "accuracy", "loss")
    assert all(set(line["side"]) == {*names, *(f"{name}_std" for name in names)} for line in lines)
    assert {kind for kind, _ in BLOCKS} == {"toml", "python"}


def test_the_table_is_what_the_formulas_say() -> None:
    rows = re.findall(r"^\| ([\d.]+) \| \+ ([\d.]+) % \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for share, dearer, noise in rows:
        f = float(share)
        assert float(dearer) == pytest.approx(100.0 * ((1.0 - f) ** -0.5 - 1.0), rel=0.02)
        assert float(noise) == pytest.approx(2.5 / (math.sqrt(f) * 100.0), rel=0.02)
