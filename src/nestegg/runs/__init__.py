"""Runs: start one, go on with one, plan anew what is left of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nestegg.config import Config, changed, check_config
from nestegg.errors import InputError
from nestegg.identity import config_digest
from nestegg.ledger import RunBooks
from nestegg.planning import Plan, remarks
from nestegg.roster import make_plan
from nestegg.runs.folder import RunFolder
from nestegg.runs.payment import Payment, check_ledger, new_run_name, paying
from nestegg.runs.soundness import check_arithmetic
from nestegg.runs.task import OnRound, Say, Task, resolved
from nestegg.training import AdaptiveClipping

__all__ = ["RunFolder", "Task", "replan_run", "resume_run", "rounds_left", "start_run"]


def start_run(
    config: Config,
    folder: Path,
    on_round: OnRound = lambda report: None,
    say: Say = lambda sentence: None,
    *,
    charts: bool = False,
) -> dict[str, Any]:
    """Train by a configuration and write a run folder, which must not exist yet; returns its summary.

    The charts are in the run's page; they are also PNG and SVG files if asked for.
    """
    check_config(config)
    if folder.exists():
        raise InputError(f"{folder} exists; give another folder, or resume it with --resume.")
    plan = make_plan(config)
    config = changed(resolved(config, plan), "ledger", run=new_run_name(folder))
    task = Task(config, plan)
    check_ledger(config, plan)
    run = RunFolder(folder)
    run.create(config, plan)
    for remark in remarks(plan):
        say(remark)
    with run.locked(), paying(config, folder, plan) as payment:
        return task.run(run, payment, on_round, say, charts=charts)


def resume_run(
    folder: Path,
    on_round: OnRound = lambda report: None,
    say: Say = lambda sentence: None,
    *,
    charts: bool = False,
) -> dict[str, Any]:
    """Go on where a run stopped; of a run that is complete, draw the charts if asked for, and return the summary."""
    run, config, plan = _opened(folder)
    with run.locked(), paying(config, folder, plan) as payment:
        _reconcile(run, config, plan, payment, say)
        saved = run.load_checkpoint()
        is_trained = saved is not None and saved.facts["round"] == payment.plan.rounds
        if is_trained and not charts and (summary := run.summary()) is not None:
            return summary
        return Task(config, payment.plan).run(run, payment, on_round, say, charts=charts)


def replan_run(folder: Path, say: Say = lambda sentence: None) -> Plan:
    """Plan the rounds that are left of a run anew, from what everybody in it has spent."""
    run, config, plan = _opened(folder)

    def acceptable(made: Plan) -> None:
        if made.about.learns_clip_norm:
            AdaptiveClipping(**config.privacy.adaptive.model_dump()).check(made)

    with run.locked(), paying(config, folder, plan) as books:
        if not isinstance(books, RunBooks):
            raise InputError(f"{folder} has no noise and no account, so there is nothing to plan anew.")
        _reconcile(run, config, plan, books, say)
        made = books.replan(acceptable)
        run.put_in_force(made)
        for sentence in books.conditions():
            say(sentence)
        return made


def rounds_left(folder: Path) -> int:
    """About how many rounds a stopped run has still to go."""
    run = RunFolder(folder)
    return max(run.plan().rounds - len(run.lines()), 0)


def _opened(folder: Path) -> tuple[RunFolder, Config, Plan]:
    """A run that was begun, its configuration and its plan, if this version can go on with it."""
    run = RunFolder(folder)
    config, plan = run.config(), run.plan()
    check_arithmetic(run, plan.rounds)
    run.private()
    return run, config, plan


def _reconcile(run: RunFolder, config: Config, plan: Plan, payment: Payment, say: Say) -> None:
    """Bring the ledger and the folder into agreement: what the checkpoint holds, and which plan is in force."""
    saved = run.load_checkpoint()
    if saved is not None:
        made_by = saved.facts.get("plan", "")
        made = run.plan_of(made_by) or (payment.stored_plan(made_by) if made_by in payment.plans else None)
        if saved.facts.get("config") != config_digest(config) or made is None:
            raise InputError(f"the checkpoint in {run.path} is a checkpoint of another configuration.")
        said = payment.reconcile([*saved.facts["results"], saved.digest], made)
    else:
        said = payment.reconcile([])
    for sentence in said:
        say(sentence)
    if payment.plan.digest != plan.digest:
        run.put_in_force(payment.plan)
        say(f"The run goes on by the plan {payment.plan.digest[:16]}, made anew.")
