"""docs/statement.md: every block of it runs, in its order and in one folder, and prints what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Run

PAGE = (Path(__file__).parents[2] / "docs" / "statement.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_every_block_of_the_page_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = ""
    for kind, text in BLOCKS:
        if kind == "toml":
            Path("config.toml").write_text(text)
        elif kind == "python":
            exec(compile(text, "docs/statement.md", "exec"), {})
            printed = capsys.readouterr().out
        elif kind == "text":
            assert text.strip() in printed
        else:
            for command in text.splitlines():
                if command.startswith("ssh-keygen"):
                    subprocess.run(command, shell=True, check=True, capture_output=True)
                    continue
                done = run(*shlex.split(command)[1:])
                assert done.code == 0, (command, done.err)
                printed = done.out
    assert {kind for kind, _ in BLOCKS} == {"toml", "sh", "python", "text"}
    assert printed.count("is right at most") == 2
