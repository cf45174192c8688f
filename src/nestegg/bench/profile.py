"""Where the time of a round goes: the parts of the mechanism by cProfile, and the operations of torch below them."""

from __future__ import annotations

import cProfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from nestegg.bench.works import load_federation, recipe, write_work

# What is called what; the rest of a round is everything else.
PARTS = {
    "training": "train_block",
    "of it shuffling": "orders",
    "clipping and sum": "sum",
    "noise": "noise",
    "sampling": "cohort",
}
_SHOWN, _LEAST = 8, 0.01


@dataclass(frozen=True)
class Profile:
    """A round on one core.

    Attributes:
        work: its name.
        seconds: it took.
        parts: the share of each part of the mechanism.
        operations: the share of the most expensive operations of torch; the compiled kernel is none of them.
    """

    work: str
    seconds: float
    parts: dict[str, float]
    operations: dict[str, float]

    @property
    def privacy(self) -> float:
        """The share of all that is not training."""
        return 1.0 - self.parts["training"]


def profile_round(name: str, data: str | None) -> Profile:
    """Do a round with one worker, warm, under both profilers in turn."""
    with tempfile.TemporaryDirectory() as folder:
        write_work(recipe(name), Path(folder), 2, data)
        world = load_federation(Path(folder), workers=1)
        state = world.start()
        world.round(state)
        started = time.perf_counter()
        world.round(state)
        seconds = time.perf_counter() - started
        profiler = cProfile.Profile()
        profiler.runcall(world.round, state)
        with profile(activities=[ProfilerActivity.CPU]) as operations:
            world.round(state)
    calls = {call.code.co_name: call.totaltime for call in profiler.getstats() if not isinstance(call.code, str)}
    parts = {part: calls[function] / calls["round"] for part, function in PARTS.items() if function in calls}
    averages = sorted(operations.key_averages(), key=lambda event: -event.self_cpu_time_total)
    shares = {event.key: event.self_cpu_time_total / 1e6 / seconds for event in averages[:_SHOWN]}
    return Profile(name, seconds, parts, {name: share for name, share in shares.items() if share >= _LEAST})
