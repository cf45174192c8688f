"""The last lines of `make demo`: five, as the README shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .conftest import ROOT

RECIPE = {"fedavg": 97.5, "dp-fedavg": 92.41, "idp-fedavg": 95.278, "paper": 92.5, "exact": 93.89, "optimal": 95.926}
PAPERS_WAY = {"paper": 87.69}


def test_the_demo_ends_with_the_five_lines_that_the_readme_shows(tmp_path: Path) -> None:
    for name, finals in {"recipe": RECIPE, "papers-way": PAPERS_WAY}.items():
        (tmp_path / "demo" / name).mkdir(parents=True)
        rows = [f"{method},{mean}" for method, mean in finals.items()]
        (tmp_path / "demo" / name / "comparison-summary.csv").write_text("\n".join(["method,mean", *rows]))
    group = {"name": "strict", "epsilon": 14.0, "epsilon_spent": 13.99}
    summary = {"rounds": 25, "final_accuracy": 88.89, "groups": [group]}
    (tmp_path / "demo" / "tuesday").mkdir()
    (tmp_path / "demo" / "tuesday" / "summary.json").write_text(json.dumps(summary))
    command = [sys.executable, str(ROOT / "examples" / "gains.py"), "demo"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert len(printed.splitlines()) == 5
    assert all(len(line) <= 120 for line in printed.splitlines())
    assert printed in (ROOT / "README.md").read_text(encoding="utf-8")
