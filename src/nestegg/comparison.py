"""Several methods on the same partition and the same initial model, seed by seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestegg.checks import whole
from nestegg.config import Config, changed, check_config
from nestegg.description import of_config
from nestegg.errors import InputError, StoppedError
from nestegg.planning import COMPARED, Plan, known_method
from nestegg.processes import as_done
from nestegg.release import stamp
from nestegg.roster import with_method
from nestegg.runs import RunFolder, resume_run, start_run
from nestegg.runs.configured import new_simulation, resolved
from nestegg.runs.payment import check_ledger
from nestegg.training.workers import one_thread

_GO_ON = "What is done of the comparison is kept; the same command with --resume goes on."


class Comparison:
    """Several methods with several seeds, each a run in a folder of its own.

    Args:
        config: what is trained, and the first seed.
        methods: names of `planning.COMPARED`, or "module:Name".
        seeds: how many.
        folder: where the runs are.

    Raises:
        InputError: a method cannot be run, or the folder holds runs of another configuration. Nothing was written.
    """

    def __init__(self, config: Config, methods: Sequence[str], seeds: int, folder: Path) -> None:
        check_config(config)
        whole("seeds", seeds, 1)
        if not methods or len(set(methods)) < len(methods):
            raise InputError(f"methods = {','.join(methods)!r} must name at least one method, and none twice.")
        for name in methods:
            known_method("methods", name, COMPARED)
        self.config, self.methods, self.folder = config, tuple(methods), folder
        self.seeds = range(config.training.seed, config.training.seed + seeds)
        for name in methods:
            self._check(name)

    def run(self, jobs: int, on_run: Callable[[str, int, float], None] = lambda *_: None) -> None:
        """Take runs that are complete as they are, go on with those that stopped, and start those that are missing.

        No bit of a result depends on how many processes there are, or on interruptions.

        Args:
            jobs: runs at a time, each in a process of its own.
            on_run: gets the method, the seed and the final accuracy of every run.

        Raises:
            StoppedError: it was interrupted, or a run stopped; what is done is kept.
        """
        missing = []
        for name, seed in product(self.methods, self.seeds):
            if RunFolder(self._place(name, seed)).summary() is None:
                missing.append((name, seed))
            else:
                on_run(name, seed, _accuracies(self._place(name, seed))[-1])
        jobs = min(jobs, len(missing))
        todo = [(variant(self.config, name, seed), self._place(name, seed)) for name, seed in missing]
        if jobs > 1:  # each of several processes has one core
            todo = [(changed(config, "training", workers=1), place) for config, place in todo]
        try:
            for number, accuracy in as_done(_finished, todo, jobs):
                on_run(*missing[number], accuracy)
        except KeyboardInterrupt:
            raise StoppedError(f"It was interrupted. {_GO_ON}") from None
        except BrokenProcessPool:
            raise StoppedError(f"It was interrupted, or one of its processes died. {_GO_ON}") from None
        except StoppedError as error:
            raise StoppedError(f"{error} (this run alone). {_GO_ON}") from None

    def curves(self) -> dict[str, NDArray[np.float64]]:
        """Accuracy of every method, (seeds, rounds), once all runs are complete."""
        return {
            name: np.array([_accuracies(self._place(name, seed)) for seed in self.seeds], np.float64)
            for name in self.methods
        }

    @property
    def note(self) -> str | None:
        """What is to be said about a release."""
        return stamp(self.config.training.reproducible).get("note")

    def _place(self, name: str, seed: int) -> Path:
        return self.folder / f"{name.replace(':', '.')}-{seed}"  # a colon is no part of a file name everywhere

    def _check(self, name: str) -> None:
        tried = variant(self.config, name, self.seeds[0])
        simulation, described = new_simulation(tried, "")
        plan = simulation.federation.plan
        for seed in self.seeds:
            if self._place(name, seed).exists():
                _check_origin(RunFolder(self._place(name, seed)), variant(self.config, name, seed), plan)
        if not all(self._place(name, seed).exists() for seed in self.seeds):
            check_ledger(described, plan)


def _check_origin(run: RunFolder, config: Config, plan: Plan) -> None:
    """Refuse a run of another configuration: a table must not mix them."""
    same = run.run.identity == of_config(resolved(config, plan)).identity
    if not same or run.plan_of(plan.digest) is None:
        raise InputError(f"{run.path} is a run of another configuration or plan; give another folder.")


def _finished(what: tuple[Config, Path]) -> float:
    """Bring a run to its end, and return its final accuracy."""
    config, folder = what
    with one_thread():  # so that bits do not depend on the threads that a process has
        if folder.exists():
            resume_run(folder)
        else:
            start_run(config, folder)
    return _accuracies(folder)[-1]


def _accuracies(folder: Path) -> list[float]:
    return [json.loads(line)["accuracy"] for line in RunFolder(folder).lines()]


def variant(config: Config, name: str, seed: int) -> Config:
    """The configuration with another method and seed; keys of other methods are dropped."""
    return changed(with_method(config, name), "training", seed=seed)
