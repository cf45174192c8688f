"""How cost grows with clients, cohort, parameters, rounds and groups, measured on federations of one kind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from nestegg.bench.enrolled import alone, planned, rounds_from_file, write_clients
from nestegg.bench.process import Process
from nestegg.bench.simulators import python_of, simulators
from nestegg.bench.works import Recipe, random_clients, write_work
from nestegg.models.networks import HIDDEN
from nestegg.training import LocalTraining

_ROUNDS = 5
_TRAINING = LocalTraining(1, 10, 0.05, schedule="constant")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One federation: what was varied, to what, and what a round took; or all rounds, or the plan.

    Attributes:
        varied: a name in `TITLES`.
        value: to which it was set.
        seconds: that it took; of the processor, where clients are in a file and where groups are planned.
        megabytes: that its processes held at most.
    """

    varied: str
    value: int
    seconds: float
    megabytes: float


def _digits_like(clients: int, sampled: int, features: int = 64) -> Recipe:
    return Recipe(
        f"{clients} clients of 10 samples, {sampled} of them sampled, {features}-32-10, one epoch of one batch",
        "mlp",
        _TRAINING,
        sampled / clients,
        lambda _: random_clients(clients, 10, 10, (features,), 10),
    )


SERIES: dict[str, tuple[str, dict[int, Recipe]]] = {
    "clients": ("clients in memory, 100 sampled", {n: _digits_like(n, 100) for n in (100, 1_000, 10_000, 100_000)}),
    "cohort": ("clients sampled of 100,000", {n: _digits_like(100_000, n) for n in (100, 1_000, 10_000, 100_000)}),
    "parameters": (
        "trainable parameters, 100 clients sampled",
        {(n + 1) * HIDDEN + (HIDDEN + 1) * 10: _digits_like(100, 100, n) for n in (16, 64, 256, 1_024, 4_096, 16_384)},
    ),
}
ROUNDS = (1, 10, 100, 1_000)
ENROLLED = (1_000, 10_000, 100_000, 1_000_000)
GROUPS = (1, 10, 100, 1_000, 10_000)
TITLES = {
    **{name: title for name, (title, _) in SERIES.items()},
    "rounds": "rounds of 100 clients, in all",
    "enrolled": "clients in a Parquet file, 100 sampled",
    "groups": "groups of a plan of 25 rounds",
    "nodes": "nodes of a cluster without work",
}


def growth(cache: Path, say: Say = lambda _: None) -> Iterator[Point]:
    """Measure every series, federation by federation, each in a process of its own."""
    ours = simulators(1)[0]
    for varied, (_, recipes) in SERIES.items():
        for value, made in recipes.items():
            say(f"{varied}: {value:,} …")
            with tempfile.TemporaryDirectory() as folder:
                write_work(made, Path(folder), _ROUNDS)
                with Process(ours, ours.modes[0], python_of(ours, cache), Path(folder)) as process:
                    memory = process.peak_memory(1)
                    seconds = median(process.round(t) for t in range(1, _ROUNDS + 1))
            yield Point(varied, value, seconds, memory / 1e6)
    with tempfile.TemporaryDirectory() as folder:
        write_work(_digits_like(1_000, 100), Path(folder), ROUNDS[-1])
        with Process(ours, ours.modes[0], python_of(ours, cache), Path(folder)) as process:
            process.round(1)
            passed = 0.0
            for t in range(1, ROUNDS[-1] + 1):
                passed += process.round(t)
                if t in ROUNDS:
                    say(f"rounds: {t:,} …")
                    yield Point("rounds", t, passed, process.peak_memory(t) / 1e6)
    yield from _enrolled_and_planned(say)


def _enrolled_and_planned(say: Say) -> Iterator[Point]:
    for clients in ENROLLED:
        say(f"enrolled: {clients:,} …")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "clients.parquet"
            write_clients(file, clients)
            yield Point("enrolled", clients, *alone(rounds_from_file, file, _ROUNDS))
    for groups in GROUPS:
        say(f"groups: {groups:,} …")
        yield Point("groups", groups, *alone(planned, groups))
