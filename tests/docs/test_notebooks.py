"""Notebooks in examples/ run from top to bottom, and show what their texts say."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def shown(notebook: Path) -> list[Any]:
    """Run the cells in one namespace, and return the value of every cell's last expression, as a notebook shows it."""
    namespace: dict[str, Any] = {}
    values = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        value = None
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(tree.body[:-1], []), notebook.name, "exec"), namespace)
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), namespace)
        else:
            exec(compile(tree, notebook.name, "exec"), namespace)
        values.append(value)
    return values


def test_notebooks_are_kept_without_output() -> None:
    """What a notebook has shown may hold paths of whoever ran it, and goes stale."""
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            assert cell.get("outputs", []) == [], notebook


def test_plans() -> None:
    plan, judged, words, ratios, more = shown(ROOT / "examples" / "notebooks" / "plans.ipynb")
    assert "<table" in plan._repr_html_()
    assert [round(epsilon) for epsilon in judged] == [10, 20, 30]
    assert "right at most" in words["strict"]
    assert ratios[1_000] < ratios[10_000] < ratios[100_000]
    assert more > 1.0


@pytest.mark.slow
def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    *_, accuracy, spent, _ = shown(ROOT / "examples" / "notebooks" / "training.ipynb")
    assert accuracy > 75.0
    assert spent["client 0"] == pytest.approx(10.0, abs=1e-3)
    assert spent["client 49"] == pytest.approx(20.0, abs=1e-3)
    assert "would go over budget" in capsys.readouterr().out
    assert (tmp_path / "notebook-run" / "report.html").is_file()


def test_all_notebooks_are_run() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["plans", "training"]
