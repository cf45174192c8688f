"""Several methods on the same data and the same initial model, seed by seed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from nestegg.checks import whole
from nestegg.configuration.config import Config, changed
from nestegg.configuration.description import dataset_of, of_config
from nestegg.configuration.limits import check_config
from nestegg.configuration.participants import with_method
from nestegg.errors import InputError, StoppedError
from nestegg.files import nothing_left
from nestegg.planning import COMPARED, Plan, known_method
from nestegg.report.comparison import Results, write_comparison
from nestegg.runs import RunFolder, resume_run, run, start_run
from nestegg.runs.carrying import errand, put_folder, run_errand
from nestegg.runs.configured import new_simulation, resolved
from nestegg.runs.payment import check_ledger
from nestegg.runs.processes import as_done
from nestegg.training import Federation
from nestegg.training.blocks import one_thread

_NAME = re.compile(r"[\w.:+ -]+")  # of a method, which names a folder
OnRun = Callable[[str, int, str], None]


def compare(
    make: Callable[[str, int], Federation],
    folder: Path | str,
    *,
    methods: Sequence[str],
    seeds: int = 3,
    resume: bool = False,
) -> Results:
    """Run one's own federations by several methods, and write a page, a chart and tables, as `nestegg compare` does.

    Each is a durable run in a folder of its own. With `resume=True`, runs that are complete are taken as they are,
    those that stopped go on, and those that are missing are started.

    Args:
        make: makes the federation of a method and a seed; with one seed, data and first model should be the same.
        folder: of the comparison; new, unless `resume`.
        methods: their names, which `make` gets.
        seeds: how many; they are counted from 0.
        resume: go on with the comparison in the folder; if there is none, start it.

    Returns:
        What was measured on public test data: curves by method, (seeds, rounds).

    Raises:
        StoppedError: it was interrupted, or a run stopped; what is done is kept.
    """
    grid = Grid(methods, range(whole("seeds", seeds, 1)), Path(folder))
    if grid.folder.exists() and not resume:
        raise InputError(f"{folder} exists; give another folder, or go on with it by resume=True.")
    with _stopping("the same call with resume=True goes on"), one_thread():
        for name, seed in grid.cells():
            run(_made(make, name, seed), grid.place(name, seed), resume=True)
    results = grid.results("own data")
    write_comparison(grid.folder, results)
    return results


class Grid:
    """Methods and seeds, each pair a run in a folder of its own."""

    def __init__(self, methods: Sequence[str], seeds: range, folder: Path) -> None:
        if not methods or len(set(methods)) < len(methods):
            raise InputError(f"methods = {','.join(methods)!r} must name at least one method, and none twice.")
        for name in methods:
            if not _NAME.fullmatch(name):
                raise InputError(f"methods: {name!r} must be a name that a folder can have, too.")
        self.methods, self.seeds, self.folder = tuple(methods), seeds, folder
        if len({self.place(name, 0) for name in methods}) < len(methods):
            raise InputError(f"methods = {','.join(methods)!r}: two of them would have the same folder.")

    def cells(self) -> list[tuple[str, int]]:
        """Return all pairs of a method and a seed."""
        return list(product(self.methods, self.seeds))

    def place(self, name: str, seed: int) -> Path:
        """Return the folder of a run."""
        return self.folder / f"{name.replace(':', '.')}-{seed}"  # a colon is no part of a file name everywhere

    def results(self, dataset: str) -> Results:
        """Return what was measured, once all runs are complete."""
        lines = {cell: RunFolder(self.place(*cell)).lines() for cell in self.cells()}
        measure = measure_of(next(iter(lines.values())))
        curves = {
            name: np.array([values_of(lines[name, seed], measure) for seed in self.seeds], np.float64)
            for name in self.methods
        }
        notes = [(RunFolder(self.place(*cell)).summary() or {}).get("note") for cell in lines]
        return Results(curves, measure, dataset, self.seeds[0], next(filter(None, notes), None))


class Comparison(Grid):
    """Several methods by one configuration, with several seeds.

    Args:
        config: what is trained, and the first seed.
        methods: names of `planning.COMPARED`, or "module:Name".
        seeds: how many.
        folder: where the runs are.

    Raises:
        InputError: a method cannot be run, or the folder holds runs of another configuration. Nothing was written.
    """

    @nothing_left()
    def __init__(self, config: Config, methods: Sequence[str], seeds: int, folder: Path) -> None:
        check_config(config)
        first = config.training.seed
        super().__init__(methods, range(first, first + whole("seeds", seeds, 1)), folder)
        for name in methods:
            known_method("methods", name, COMPARED)
        self.config = config
        for name in methods:
            self._check(name)

    def run(self, jobs: int, on_run: OnRun = lambda *_: None, *, cluster: str | None = None) -> Results:
        """Take runs that are complete as they are, go on with those that stopped, and start those that are missing.

        No bit of a result depends on how many processes there are, or on interruptions.

        Args:
            jobs: runs at a time, each in a process of its own.
            on_run: gets the method, the seed and what was measured at the end of every run.
            cluster: on whose nodes runs are trained instead, as in `Performance`; their folders come back.

        Raises:
            StoppedError: it was interrupted, or a run stopped; what is done is kept.
        """
        missing = []
        for name, seed in self.cells():
            if RunFolder(self.place(name, seed)).summary() is None:
                missing.append((name, seed))
            else:
                on_run(name, seed, _final(self.place(name, seed)))
        jobs = min(jobs, len(missing))
        todo = [(variant(self.config, name, seed), self.place(name, seed)) for name, seed in missing]
        if jobs > 1 or cluster is not None:  # each of several processes has one core
            todo = [(changed(config, "training", workers=1), place) for config, place in todo]
        with _stopping("the same command with --resume goes on"):
            for number in _finished_there(todo, cluster) if cluster is not None else _finished_here(todo, jobs):
                on_run(*missing[number], _final(todo[number][1]))
        return self.results(dataset_of(self.config))

    def _check(self, name: str) -> None:
        simulation, described = new_simulation(variant(self.config, name, self.seeds[0]), "")
        _check_test(simulation.federation)
        plan = simulation.federation.plan
        places = {seed: self.place(name, seed) for seed in self.seeds}
        for seed, place in places.items():
            if place.exists():
                _check_origin(RunFolder(place), variant(self.config, name, seed), plan)
        if not all(place.exists() for place in places.values()):
            check_ledger(described, plan)


def variant(config: Config, name: str, seed: int) -> Config:
    """The configuration with another method and seed; keys of other methods are dropped."""
    return changed(with_method(config, name), "training", seed=seed)


def measure_of(lines: Sequence[str]) -> str:
    """Return what tells how good a model is: accuracy, or else one's own first metric, or else the loss."""
    last: dict[str, Any] = json.loads(lines[-1])
    if last["accuracy"] is not None:
        return "accuracy"
    return next(iter(last.get("metrics", {})), "loss")


def values_of(lines: Sequence[str], measure: str) -> list[float | None]:
    """Return what was measured after every round."""
    rounds = [json.loads(line) for line in lines]
    return [line[measure] if measure in line else line["metrics"][measure] for line in rounds]


def _final(folder: Path) -> str:
    """What was measured at the end of a run, in words."""
    lines = RunFolder(folder).lines()
    measure = measure_of(lines)
    (value,) = values_of(lines[-1:], measure)
    shown = "–" if value is None else f"{value:.1f} %" if measure == "accuracy" else f"{value:.4g}"
    return f"{measure} {shown}"


def _made(make: Callable[[str, int], Federation], name: str, seed: int) -> Federation:
    federation = make(name, seed)
    if not isinstance(federation, Federation):
        raise InputError(f"make({name!r}, {seed}) returned a {type(federation).__name__}; it must return a Federation.")
    _check_test(federation)
    return federation


def _check_test(federation: Federation) -> None:
    if federation.test is None:
        raise InputError("a comparison needs public test data to measure methods on; there is none.")


def _check_origin(run: RunFolder, config: Config, plan: Plan) -> None:
    """Refuse a run of another configuration: a table must not mix them."""
    same = run.about.identity == of_config(resolved(config, plan)).identity
    if not same or run.plan_of(plan.digest) is None:
        raise InputError(f"{run.path} is a run of another configuration or plan; give another folder.")


def _finished_here(todo: Sequence[tuple[Config, Path]], jobs: int) -> Iterator[int]:
    """Bring runs to their ends, and yield their places."""
    return (place for place, _ in as_done(_finish, todo, jobs))


def _finished_there(todo: Sequence[tuple[Config, Path]], cluster: str) -> Iterator[int]:
    """The same on a cluster."""
    gpus = int(any(config.training.device != "cpu" for config, _ in todo))
    for place, content in as_done(run_errand, [errand(*one) for one in todo], 1, cluster, gpus):
        put_folder(content, todo[place][1])
        yield place


def _finish(what: tuple[Config, Path]) -> None:
    config, folder = what
    with one_thread():  # so that bits do not depend on the threads that a process has
        if folder.exists():
            resume_run(folder)
        else:
            start_run(config, folder)


@contextmanager
def _stopping(go_on: str) -> Iterator[None]:
    """Say of whatever stops a comparison how it goes on."""
    kept = f"What is done of the comparison is kept; {go_on}."
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(f"It was interrupted. {kept}") from None
    except BrokenProcessPool:
        raise StoppedError(f"It was interrupted, or one of its processes died. {kept}") from None
    except StoppedError as error:
        raise StoppedError(f"{error} (this run alone). {kept}") from None
