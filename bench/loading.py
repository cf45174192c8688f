"""Rounds of clients whose `load` waits, or works: in this process, with a worker for each of two cores, and by default.

python -m bench.loading [--clients 100] [--rounds 10]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from nestegg import Budget, Federation, Group, LocalTraining, Performance, plan
from nestegg.training import clients as clients_module

FEATURES, LABELS, SAMPLES = 50, 10, 20
MODELS: dict[str, Callable[[], nn.Module]] = {"dense": nn.ReLU, "loop": nn.GELU}
CASES = [("waits", 0.0), ("waits", 0.2), ("waits", 2.0), ("waits", 10.0), ("works", 2.0)]
WORKERS = [1, 2, None]


def client(number: int, kind: str, milliseconds: float) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return a function that takes its time to load a client."""

    def load() -> tuple[Tensor, Tensor]:
        if kind == "waits" and milliseconds:
            time.sleep(milliseconds / 1000)
        elif kind == "works":
            end = time.thread_time() + milliseconds / 1000
            while time.thread_time() < end:
                pass
        stream = torch.Generator().manual_seed(number)
        x = torch.randn(SAMPLES, FEATURES, generator=stream)
        return x, torch.randint(0, LABELS, (SAMPLES,), generator=stream)

    return load


def measured(engine: str, kind: str, milliseconds: float, *, clients: int, rounds: int, workers: int | None) -> str:
    """Return how long rounds take once it is decided how many workers there are, and how many these are."""
    made = plan([Group("all", clients, Budget(8.0))], rounds=rounds, spending_rate=1.0)
    model = nn.Sequential(nn.Linear(FEATURES, 32), MODELS[engine](), nn.Linear(32, LABELS))
    data = {f"client-{number}": client(number, kind, milliseconds) for number in range(clients)}
    world = Federation(
        made, model, data, local=LocalTraining(epochs=1), performance=Performance(engine=engine, workers=workers)
    )
    state, times = world.start(), []
    while state.round < rounds:
        began = time.perf_counter()
        state, _ = world.round(state)
        times.append(1000 * (time.perf_counter() - began))
    return f"{np.median(times[rounds // 2 :]):6.0f} ms ({world.workers.count})"


def main() -> None:
    """Measure, and print a line for each engine and way to load; numbers of workers in brackets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    clients_module._CACHE = 0  # every client is loaded in every round
    for engine in MODELS:
        for kind, milliseconds in CASES:
            found = [
                measured(engine, kind, milliseconds, clients=asked.clients, rounds=asked.rounds, workers=workers)
                for workers in WORKERS
            ]
            print(f"{engine}, {kind} {milliseconds:4.1f} ms a client: {' | '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
