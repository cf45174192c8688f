"""A run's life: the order of a round, what is left when any step fails, and folders of earlier versions."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nestegg import Budget, Group, InputError, plan
from nestegg.ledger import Ledger, RunBooks
from nestegg.runs import resume_run
from nestegg.runs.folder import StateFolder
from nestegg.runs.life import Life

HERE = Path(__file__).parents[1]
PLAN = plan([Group("all", 2, Budget(5.0))], rounds=3)
NAMES = ["ada", "bob"]


def books(folder: Path) -> RunBooks:
    ledger = Ledger(folder / "ledger.db")
    if ledger.has_run("run"):
        return ledger.books("run")
    return ledger.begin("run", PLAN, NAMES, unknown=[Budget(5.0)] * 2)


def begun(folder: Path) -> Life:
    life = Life(StateFolder(folder))
    life.agree(books(folder))
    life.mend_lines()
    return life


def round_(life: Life, value: float = 1.0) -> None:
    """A whole round, whose model is a number."""
    number = life.done + 1
    life.reserve(number)
    life.release({"model": torch.tensor([value])}, json.dumps({"round": number}), {"kind": "test"})


def states(folder: Path) -> list[str]:
    with Ledger(folder / "ledger.db", read_only=True) as ledger:
        ledger.verify()
        return [charge["state"] for charge in ledger.charges()]


def test_a_round_is_paid_before_it_is_saved_and_released_before_it_is_told(tmp_path: Path) -> None:
    life = begun(tmp_path)
    life.reserve(1)
    assert states(tmp_path) == ["reserved"]
    assert not (tmp_path / "checkpoint.safetensors").exists()
    life.release({"model": torch.ones(1)}, '{"round": 1}', {})
    assert states(tmp_path) == ["released"]
    assert (tmp_path / "rounds.jsonl").read_text() == '{"round": 1}\n'
    assert life.done == 1


STEPS = [(StateFolder, "save_checkpoint"), (RunBooks, "release"), (StateFolder, "append_line")]


@pytest.mark.parametrize(("owner", "step"), STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_whatever_step_fails_the_round_is_paid_once_and_the_run_goes_on(
    owner: Any, step: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_(begun(tmp_path))
    original = getattr(owner, step)

    def dies(*arguments: Any) -> Any:
        if after:
            original(*arguments)
        raise MemoryError

    life = begun(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, dies)
        with pytest.raises(MemoryError):
            round_(life)
    told = (tmp_path / "rounds.jsonl").read_text().count("\n")
    assert told == (2 if (step, after) == ("append_line", True) else 1)  # nothing is told that is not released
    again = begun(tmp_path)
    was_saved = (step, after) != ("save_checkpoint", False)
    assert again.done == (2 if was_saved else 1)
    while again.done < 3:
        round_(again)
    assert states(tmp_path) == ["released"] * 3
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]  # also that of the step that failed


def test_lines_of_rounds_that_were_never_released_go_and_lost_ones_are_told_of(tmp_path: Path) -> None:
    life = begun(tmp_path)
    round_(life)
    round_(life)
    (tmp_path / "rounds.jsonl").write_text('{"round": 2}\n{"round": 3}\n{"rou')
    again = Life(StateFolder(tmp_path))
    assert again.mend_lines() == ["rounds.jsonl has lost 1 of its lines: the report will have gaps."]
    assert (tmp_path / "rounds.jsonl").read_text() == '{"round": 2}\n'


def test_only_the_next_round_can_be_reserved(tmp_path: Path) -> None:
    life = begun(tmp_path)
    with pytest.raises(InputError, match="round 2 of run 'run' is not the next one, which is 1"):
        life.reserve(2)
    round_(life)
    with pytest.raises(InputError, match="round 1 of run 'run' was released; it is never run again"):
        life.reserve(1)


def test_simulator_and_flower_have_the_same_life() -> None:
    """No other module than life.py pays, saves and releases."""
    source = HERE.parent / "src" / "nestegg"
    uses = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\.(save_checkpoint|append_line)\(", path.read_text())
    }
    assert uses == {"runs/life.py"}


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Stopped after round 3 of 6 by nestegg of November 2026, before callbacks and runs from Python."""
    shutil.copytree(HERE / "old_run", tmp_path / "run")
    summary = resume_run(tmp_path / "run")
    assert summary["rounds"] == 6
    assert summary["final_accuracy"] == pytest.approx(83.06, abs=0.3)  # as by that version; last bits are a machine's
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert lines[:3] == (HERE / "old_run" / "rounds.jsonl").read_text().splitlines()
