"""Runs: start one, go on with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nestegg.config import Config, changed, check_method_keys
from nestegg.errors import InputError
from nestegg.planning import save_plan
from nestegg.roster import make_plan
from nestegg.runs.folder import RunFolder
from nestegg.runs.payment import check_ledger, new_run_name, paying
from nestegg.runs.task import NOT_FOR_RELEASE, OnRound, Say, Task, resolved

__all__ = ["NOT_FOR_RELEASE", "RunFolder", "Task", "resume_run", "rounds_left", "start_run"]


def start_run(
    config: Config, folder: Path, on_round: OnRound = lambda report: None, say: Say = lambda sentence: None
) -> dict[str, Any]:
    """Train by a configuration and write a run folder, which must not exist yet; returns its summary."""
    check_method_keys(config)
    if folder.exists():
        raise InputError(f"{folder} exists; give another folder, or resume it with --resume.")
    plan = make_plan(config)
    config = changed(resolved(config, plan), "ledger", run=new_run_name(folder))
    task = Task(config, plan)
    check_ledger(config, plan)
    RunFolder(folder).create(config, plan)
    return _go_on(folder, on_round, say, task)


def resume_run(
    folder: Path, on_round: OnRound = lambda report: None, say: Say = lambda sentence: None
) -> dict[str, Any]:
    """Go on where a run stopped; a run that is complete is only summed up again."""
    RunFolder(folder).plan()  # whether it is a run at all
    return _go_on(folder, on_round, say)


def rounds_left(folder: Path) -> int:
    """About how many rounds a stopped run has still to go."""
    run = RunFolder(folder)
    return max(run.plan().rounds - len(run.lines()), 0)


def _go_on(path: Path, on_round: OnRound, say: Say, task: Task | None = None) -> dict[str, Any]:
    """Train what is left, by the plan that the ledger has in force."""
    folder = RunFolder(path)
    config, plan = folder.config(), folder.plan()
    with folder.locked(), paying(config, path, plan) as (in_force, payment):
        if in_force.digest != plan.digest:
            save_plan(in_force, path / "plan.json")
            say(f"The run goes on by the plan {in_force.digest[:16]}, made anew.")
            task = None
        return (task or Task(config, in_force)).run(folder, payment, on_round, say)
