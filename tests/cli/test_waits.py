"""Nobody waits for what is not needed: help, a saved plan and a finished run come without heavy libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from nestegg.configuration.finished import finished_summary
from tests.conftest import EXAMPLE, Run


def one_round(folder: Path) -> Path:
    """Write the digits' example with one round."""
    file = folder / "one-round.toml"
    file.write_text(EXAMPLE.with_name("digits.toml").read_text().replace("rounds = 25", "rounds = 1"))
    return file


def imported(*arguments: object) -> set[str]:
    """Return the heavy libraries that a command imports."""
    code = (
        "import sys\n"
        "from nestegg.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "slow = ('torch', 'altair', 'sqlalchemy', 'vl_convert', 'dp_accounting', 'scipy.special', 'scipy.stats')\n"
        "print(*(name for name in slow if name in sys.modules), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout
    return set(done.stderr.split())


def test_who_asks_for_help_a_saved_plan_or_a_finished_run_waits_for_no_library(run: Run, tmp_path: Path) -> None:
    assert imported("--help") == imported("--version") == set()
    assert run("plan", EXAMPLE, "--out", tmp_path / "plan.json").code == 0
    assert imported("plan", tmp_path / "plan.json") == set()
    assert run("run", one_round(tmp_path), "--out", tmp_path / "run").code == 0
    assert imported("run", "--resume", tmp_path / "run") == set()


def test_a_saved_plan_is_shown_as_it_was_made(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    made = run("plan", EXAMPLE, "--out", file).out
    shown = run("plan", file)
    without_exposure = made[: made.index("What an attacker")] + made[made.index("ε spent, round by round") :]
    assert shown.out.startswith(without_exposure.removesuffix(f"Saved to {file}.\n"))
    assert f"nestegg verify {file}" in " ".join(shown.out.split())
    again = json.loads(run("plan", file, "--json").out)
    assert again["digest"] == json.loads(file.read_text())["digest"]
    for option in ("--compare", "--out=x.json", "--parameters=5", "--chart=x.svg"):
        refused = run("plan", file, option)
        assert refused.code == 2
        assert f"{option.split('=')[0]} needs a configuration" in " ".join(refused.err.split())
    content = json.loads(file.read_text())
    content["groups"][0]["epsilon"] += 1.0
    file.write_text(json.dumps(content))
    changed = run("plan", file)
    assert changed.code == 1
    assert "was changed after it was made" in " ".join(changed.err.split())


def test_a_finished_run_is_told_at_once_only_if_its_files_agree(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run("run", one_round(tmp_path), "--out", folder).code == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert finished_summary(folder) == summary
    assert json.loads(run("run", "--resume", folder, "--json").out) == summary
    checkpoint = (folder / "checkpoint.safetensors").read_bytes()
    damages: dict[str, list[str | bytes | None]] = {
        "report.html": [None],
        "config.toml": [None, (folder / "config.toml").read_text().replace("local_epochs = 5", "local_epochs = 4")],
        "plan.json": [None, "{}"],
        "summary.json": [None, "[", json.dumps({**summary, "rounds": 0}), json.dumps({**summary, "stopped": "so"})],
        "checkpoint.safetensors": [
            None,
            b"",
            checkpoint[:-1],
            checkpoint[:20],
            checkpoint.replace(b'arithmetic\\": 2', b'arithmetic\\": 1'),
        ],
    }
    for name, contents in damages.items():
        whole = (folder / name).read_bytes()
        for content in contents:
            (folder / name).unlink(missing_ok=True)
            if content is not None:
                (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
            assert content != whole
            assert finished_summary(folder) is None, (name, content)
        (folder / name).write_bytes(whole)
    assert finished_summary(folder) == summary


def test_the_command_ends_at_once_with_its_code_and_all_that_was_said(tmp_path: Path) -> None:
    """Exit handlers have run, also those of whoever came before us; nothing is taken apart after them."""
    code = (
        "import atexit, sys\n"
        "class Left:\n"
        "    def __del__(self): print('taken apart')\n"
        "sys.left = Left()\n"
        "atexit.register(print, 'handled')\n"
        "from nestegg.cli import command\n"
        "command()\n"
    )
    for arguments, expected in ((["--version"], 0), (["plan", str(tmp_path / "none.toml")], 2)):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == expected
        assert done.stdout.splitlines()[-1] == "handled"
        assert "taken apart" not in done.stdout + done.stderr
        assert ("nestegg" in done.stdout) is (expected == 0)
        assert ("Error:" in done.stderr) is (expected == 2)
