"""Kernels beside the loop, and the processor they ran on."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn
from typer.testing import CliRunner

from nestegg.bench import kernels
from nestegg.bench.machine import processor
from nestegg.cli.program import app
from tests.federations import DENSE


def test_kernels_are_timed_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (kernels.Shape((3, 4, 2), 2, 5, 2), kernels.Shape((3, 4, 1), 2, 5, 2, nn.Tanh))
    monkeypatch.setattr(kernels, "SHAPES", shapes)
    result = CliRunner().invoke(app, ["bench", "kernels", "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    table = (tmp_path / "kernels.md").read_text()
    heads, _, relu, tanh, *_ = table.splitlines()
    assert heads.split(" | ")[3:] == ["loop", *DENSE[:-1], f"{DENSE[-1]} |"] if DENSE else ["loop |"]
    assert relu.startswith("| 3-4-2 | 2 × 5 | 2 |")
    assert tanh.startswith("| 3-4-1, tanh | 2 × 5 | 2 |")
    assert relu.count("×") == 1 + len(DENSE)
    assert processor() in table


def test_tables_name_the_processor(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nflags\t: fpu\n")
    assert processor(file) == "AMD EPYC (family 25, model 17)"
    file.write_text("model name\t: Some other: chip\n")
    assert processor(file) == "Some other: chip"
    assert processor(tmp_path / "nowhere")
