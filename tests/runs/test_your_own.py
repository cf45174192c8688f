"""docs/your-own.md: every block of it runs, in its order and in one folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from nestegg.ledger import Ledger
from tests.conftest import Run

PAGE = (Path(__file__).parents[2] / "docs" / "your-own.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FIRST = 2  # made-up data, and the way to a private model


@pytest.fixture
def play(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run some blocks of the page: Python in one namespace, commands as a user types them, files under their names."""
    monkeypatch.chdir(tmp_path)

    def call(blocks: list[tuple[str, str]]) -> None:
        namespace: dict[str, Any] = {}
        for kind, text in blocks:
            if name := re.match(r"# (\w+\.\w+)\n", text):
                Path(name.group(1)).write_text(text)
            elif kind == "python":
                exec(compile(text, "docs/your-own.md", "exec"), namespace)
            else:
                assert kind == "sh"
                for command in text.splitlines():
                    done = run(*shlex.split(command)[1:])
                    assert done.code == 0, (command, done.err)

    return call


def test_twenty_lines_lead_from_a_file_to_a_private_model_with_a_ledger(
    play: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _, block = BLOCKS[FIRST - 1]
    assert len([line for line in block.splitlines() if line.strip()]) <= 20
    play(BLOCKS[:FIRST])
    accuracy = re.fullmatch(r"([\d.]+) % of the public test data\n", capsys.readouterr().out)
    assert accuracy is not None
    assert float(accuracy.group(1)) > 75.0
    with Ledger("sqlite:///ledger.db") as ledger:
        ledger.verify()
        assert len(list(ledger.clients())) == 60
        assert all(account.epsilon <= account.budget.epsilon for _, account in ledger.clients())


@pytest.mark.slow
def test_the_whole_page_runs(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestegg.training.performance.cores", lambda: 1)  # other tests compare in several processes
    play(BLOCKS)
    for path in ("study/run/report.html", "hospitals-run/report.html", "hospitals-comparison/comparison.html"):
        assert Path(path).is_file()
