"""One piece of work, all simulators, in one run: first the same result, then the same rounds in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from nestegg.bench.peers.work import Work
from nestegg.bench.process import Process
from nestegg.bench.simulators import Simulator, multiplication, python_of
from nestegg.bench.works import recipe, write_work
from nestegg.errors import InputError
from nestegg.training.performance import cores

Say = Callable[[str], None]


@dataclass
class Entry:
    """How a simulator did in its best mode.

    Attributes:
        name: of the simulator.
        setting: its best mode.
        version: of its package.
        memory: most bytes that its processes held together in a round.
        difference: of its result from ours, as a share of the round's update.
        seconds: of every round.
    """

    name: str
    setting: str
    version: str
    memory: int
    difference: float
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds a round."""
        return median(self.seconds)


@dataclass
class Contest:
    """What simulators did on one piece of work.

    Attributes:
        work: its name.
        what: it is.
        entries: ours first.
        missing: who could not take part, and why.
        operations: of a round.
        rate: what matrix products reach in the same run, by precision: operations a second.
    """

    work: str
    what: str
    operations: float
    entries: list[Entry] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    rate: dict[str, float] = field(default_factory=dict)

    def ratio(self, entry: Entry) -> float:
        """How many times as long as ours it takes, median by median."""
        return entry.median / self.entries[0].median


def contest(
    name: str, field_: Sequence[Simulator], rounds: int, cache: Path, data: str | None, say: Say = lambda _: None
) -> Contest:
    """Measure simulators, ours first, on one piece of work."""
    made = recipe(name)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        write_work(made, work, rounds, data)
        done = Contest(name, made.what, round_operations(work))
        runners: list[tuple[Entry, Process]] = []
        ours: NDArray[np.float32] | None = None
        for simulator in field_:
            if simulator.models and made.model not in simulator.models:
                continue
            say(f"{name}: {simulator.name} …")
            try:
                entry, process = _best(simulator, python_of(simulator, cache), work, ours, made.tolerance, stack)
            except InputError as error:
                if ours is None:
                    raise
                done.missing[simulator.name] = str(error)
                continue
            ours = process.result(1, work) if ours is None else ours
            runners.append((entry, process))
        limits = {}
        for precision in ("fp32", *(["bf16"] if any("bf16" in entry.name for entry, _ in runners) else [])):
            limit = multiplication(cores(), precision)
            limits[precision] = stack.enter_context(Process(limit, limit.modes[0], python_of(limit, cache), work))
            limits[precision].round(1)
        rates: dict[str, list[float]] = {precision: [] for precision in limits}
        for t in range(1, rounds + 1):
            say(f"{name}: round {t} of {rounds} …")
            for entry, process in list(runners):
                try:
                    entry.seconds.append(process.round(t))
                except InputError as error:
                    if entry is runners[0][0]:
                        raise
                    done.missing[entry.name] = str(error)
                    runners.remove((entry, process))
            for precision, process in limits.items():
                rates[precision].append(process.facts["operations"] / process.round(t))
        done.entries = [entry for entry, _ in runners]
        done.rate = {precision: median(values) for precision, values in rates.items()}
    return done


def _best(
    simulator: Simulator,
    python: Path,
    work: Path,
    ours: NDArray[np.float32] | None,
    tolerance: float,
    stack: ExitStack,
) -> tuple[Entry, Process]:
    """A simulator in its best mode, warm, and checked to give our result. The stack stops all that is started.

    Raises:
        InputError: it does not work, or gives another result, in any mode.
    """
    working: list[tuple[float, Entry, Process]] = []
    failure = InputError(f"{simulator.name} has no modes.")
    for mode in simulator.modes:
        try:
            process = stack.enter_context(Process(simulator, mode, python, work))
            result = process.result(1, work)
            expected = result if ours is None else ours
            update = np.linalg.norm(expected - np.load(work / "start.npy"))
            difference = float(np.linalg.norm(result - expected) / update)
            if not difference <= tolerance * simulator.loose:
                raise InputError(f"{simulator.name} ({mode.name}) gives another result, {difference:.1%} away.")
            memory = process.peak_memory(1)
            seconds = min(process.round(1), process.round(1))
        except InputError as error:
            failure = error
            continue
        entry = Entry(simulator.name, mode.name, str(process.facts["version"]), memory, difference)
        working.append((seconds, entry, process))
    if not working:
        raise failure
    best, *others = sorted(working, key=lambda one: one[0])
    for _, _, process in others:
        process.stop()
    return best[1], best[2]


def round_operations(folder: Path) -> float:
    """Floating point operations of the first round: those of matrix products and convolutions, forward and back."""
    work = Work.load(folder)
    model, x, y = work.network(), torch.from_numpy(work.x[:2]), torch.from_numpy(work.y[:2])
    with FlopCounterMode(display=False) as counter:
        work.loss(model(x), y).backward()
    samples = sum(len(batch) for _, batches in work.cohort(1) for batch in batches)
    return float(counter.get_total_flops()) / len(y) * samples
