"""Runs: start one, go on with one, plan anew what is left of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nestegg.configuration.config import Config, load_config
from nestegg.configuration.description import CONFIG, RUN, Description
from nestegg.configuration.limits import check_config
from nestegg.errors import InputError
from nestegg.files import nothing_left
from nestegg.ledger import RunBooks
from nestegg.named import load_object
from nestegg.planning import Plan, remarks
from nestegg.report.pages import Pages
from nestegg.runs.configured import Simulation, new_simulation, resumed_simulation
from nestegg.runs.folder import PLAN, RunFolder
from nestegg.runs.life import Life
from nestegg.runs.payment import Payment, check_ledger, new_run_name, paying
from nestegg.runs.private import Origin, with_fingerprint
from nestegg.runs.python import check_same, describe
from nestegg.runs.soundness import check_arithmetic
from nestegg.runs.task import Task
from nestegg.runs.telling import say
from nestegg.training import AdaptiveClipping, Callback, Federation

__all__ = ["RunFolder", "Simulation", "Task", "replan_run", "resume_run", "rounds_left", "run", "start_run"]

_HERE = Pages()  # write a run's page in this process


@nothing_left()
def run(
    federation: Federation,
    folder: Path | str,
    *,
    ledger: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    version: str = "",
    charts: bool = False,
) -> dict[str, Any]:
    """Train a federation durably, with a ledger, checkpoints and a report, as `nestegg run` does; returns the summary.

    A round is paid for in the ledger before any client works for it, and told of once it is saved and released.
    Whatever is killed, the same call with `resume=True` goes on where the last released round ended; a reproducible
    run ends with the same bits. What was trained is in `model.safetensors`.

    Args:
        federation: plan, model and clients.
        folder: of the run; new, unless `resume`.
        ledger: URL or file of the ledger that pays, over many runs; by default the run keeps its own.
        resume: go on with the run in the folder; if there is none, start it.
        callbacks: hear of every round, and may end the training after it.
        version: of the functions in `federation` (loss, optimiser, learning rates), which count by their names.
        charts: write the report's charts as PNG and SVG files, too.

    Raises:
        InputError: something does not fit; nothing was written.
        StoppedError: the run stopped and can go on.
    """
    folder = Path(folder)
    if resume and folder.exists():
        if (folder / CONFIG).is_file():
            raise InputError(f"{folder} is a run of a configuration; it goes on by: nestegg run --resume {folder}")
        _ = RunFolder(folder).about  # whether it is one
        check_same(folder, federation, ledger, version)

        def task(run: Description, payment: Payment) -> Task:
            return Task(run, federation.by(payment.plan), Origin.of(federation))

        return _gone_on(folder, task, callbacks, Pages(as_files=charts))
    _check_new(folder, " by resume=True.")
    described = describe(federation, folder, ledger, version)
    return _begun(Task(described, federation, Origin.of(federation)), folder, callbacks, Pages(as_files=charts))


@nothing_left()
def start_run(
    config: Config,
    folder: Path,
    *,
    callbacks: Sequence[Callback] = (),
    pages: Pages = _HERE,
    cluster: str | None = None,
) -> dict[str, Any]:
    """Train by a configuration and write a run folder, which must not exist yet; returns its summary.

    The run's page is written in this process by default. Where clients train, here or on a cluster, is no part of the
    run: it may go on elsewhere.
    """
    check_config(config)
    _check_new(folder, f": nestegg run --resume {folder}")
    simulation, described = new_simulation(config, new_run_name(folder), cluster)
    return _begun(simulation.task(described), folder, callbacks, pages)


@nothing_left()
def resume_run(
    folder: Path, *, callbacks: Sequence[Callback] = (), pages: Pages = _HERE, cluster: str | None = None
) -> dict[str, Any]:
    """Go on where a run stopped; of a run that is complete, draw the charts if asked for, and return the summary."""
    if (folder / RUN).is_file():
        go_on = RunFolder(folder).about.go_on.format(folder=folder)
        raise InputError(f"{folder} is a run from Python; it goes on there, with the same federation: {go_on}")

    def task(run: Description, payment: Payment) -> Task:
        return resumed_simulation(load_config(folder / CONFIG), payment.plan, payment, cluster).task(run)

    return _gone_on(folder, task, callbacks, pages)


def replan_run(folder: Path) -> Plan:
    """Plan the rounds that are left of a run anew, from what everybody in it has spent."""
    with _opened(folder) as (run, life):
        books = life.payment
        if not isinstance(books, RunBooks):
            raise InputError(f"{folder} has no noise and no account, so there is nothing to plan anew.")

        def acceptable(made: Plan) -> None:
            if made.about.learns_clip_norm:
                AdaptiveClipping(**run.about.adaptive).check(made)

        if books.plan.about.is_own and (folder / CONFIG).is_file():  # whose planner may lie beside the configuration
            load_object("plan.method", books.plan.method, load_config(folder / CONFIG).code)
        made = books.replan(acceptable, local=run.about.pace)
        run.put_in_force(made)
        say(books.conditions())
        return made


def rounds_left(folder: Path) -> int:
    """About how many rounds a stopped run has still to go."""
    run = RunFolder(folder)
    _ = run.about  # whether it is one
    return max(run.plan().rounds - len(run.lines()), 0)


def _check_new(folder: Path, how: str) -> None:
    """Refuse a folder that is there, and say how to go on with it if it is a run."""
    if folder.exists():
        is_run = (folder / PLAN).is_file()
        raise InputError(f"{folder} exists; give another folder{f', or go on with it{how}' if is_run else '.'}")


def _begun(task: Task, folder: Path, callbacks: Sequence[Callback], pages: Pages) -> dict[str, Any]:
    """Make the folder of a new run, and train."""
    described = with_fingerprint(task.run, task.origin)  # which may fail, so before anything is written
    to_say = [*check_ledger(task.run, task.plan), *remarks(task.plan)]
    run = RunFolder(folder)
    run.create(described, task.plan)
    say(to_say)
    with run.locked(), paying(task.run, folder, task.plan) as payment:
        life = Life(run)
        life.agree(payment)
        return task.train(run, life, callbacks, pages)


def _gone_on(
    folder: Path, make: Callable[[Description, Payment], Task], callbacks: Sequence[Callback], pages: Pages
) -> dict[str, Any]:
    """Go on with a run, whose task is made once it is known by which plan it goes on."""
    with _opened(folder) as (run, life):
        plan = life.payment.plan
        if life.done == plan.rounds and not pages.as_files and (summary := run.summary()) is not None:
            return summary
        task = make(run.about, life.payment)
        if life.done < plan.rounds:
            run.private().check_fingerprint(task.origin, life.payment.gone().keys(), is_new=life.done == 0)
        return task.train(run, life, callbacks, pages)


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[RunFolder, Life]]:
    """A run that was begun, once its ledger and its folder agree: on what is done, and on the plan in force."""
    run = RunFolder(folder)
    _ = run.about  # whether it is one
    plan = run.plan()
    check_arithmetic(Life(run), plan.rounds)
    run.private()
    with run.locked(), paying(run.about, folder, plan) as payment:
        life = Life(run)  # it may have gone on until it was locked
        say(life.agree(payment, _made_by(run, life, payment)))
        if payment.plan.digest != plan.digest:
            run.put_in_force(payment.plan)
            say([f"The run goes on by the plan {payment.plan.digest[:16]}, made anew."])
        yield run, life


def _made_by(run: RunFolder, life: Life, payment: Payment) -> Plan | None:
    """The plan by which a checkpoint was made, which is of this run and no other."""
    if life.saved is None:
        return None
    digest = life.saved.facts.get("plan", "")
    made = run.plan_of(digest) or (payment.stored_plan(digest) if digest in payment.plans else None)
    if life.saved.facts.get("config") != run.about.identity or made is None:
        raise InputError(
            f"the checkpoint in {run.path} is a checkpoint of another configuration: restore the one it began with, or "
            "start anew in another folder."
        )
    return made
