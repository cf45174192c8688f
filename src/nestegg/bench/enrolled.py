"""What many clients and many groups cost: rounds from a Parquet file of all who are enrolled, and plans."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from torch import nn

from nestegg.data import from_parquet
from nestegg.planning import Budget, Group, plan
from nestegg.training import Federation, LocalTraining, Performance

SAMPLED, ROUNDS = 100, 25
_SAMPLES, _FEATURES, _LABELS = 5, 16, 10
_AT_ONCE = 100_000  # clients whose rows are written together


def write_clients(file: Path, clients: int) -> None:
    """Write clients with a few random rows each, in the order of their names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = np.random.default_rng(0)
    inputs = [(f"x{i}", pa.float32()) for i in range(_FEATURES)]
    schema = pa.schema([("user", pa.string()), *inputs, ("label", pa.int64())])
    with pq.ParquetWriter(file, schema, use_dictionary=["user"], compression="none") as writer:
        for begin in range(0, clients, _AT_ONCE):
            own = range(begin, min(begin + _AT_ONCE, clients))
            names = np.repeat([f"client-{i:07d}" for i in own], _SAMPLES)
            x = stream.standard_normal((_FEATURES, len(names)), dtype=np.float32)
            y = stream.integers(_LABELS, size=len(names))
            writer.write_table(pa.table([pa.array(names), *x, y], schema=schema))


def rounds_from_file(file: Path, rounds: int) -> float:
    """Return the processor seconds of a round, by the median, in which 100 of all clients in a file are sampled."""
    source = from_parquet(file, client="user", target="label")
    count = len(source.names)
    made = plan([Group("all", count, Budget(8.0))], rounds, method="idp-fedavg", spending_rate=SAMPLED / count)
    model, local = nn.Sequential(nn.Linear(_FEATURES, _LABELS)), LocalTraining(epochs=1, batch_size=_SAMPLES)
    world = Federation(made, model, source, local=local, performance=Performance(workers=1))
    state, seconds = world.start(), []
    for _ in range(rounds):
        began = time.process_time()
        state, _ = world.round(state)
        seconds.append(time.process_time() - began)
    return median(seconds)


def planned(groups: int) -> float:
    """Return the processor seconds of the default plan of so many groups, each with a budget of its own."""
    budgets = np.linspace(1.0, 30.0, groups)
    asked = [Group(f"group {i}", 10, Budget(float(epsilon))) for i, epsilon in enumerate(budgets)]
    plan(asked[:1], ROUNDS)  # imports what is needed
    began = time.process_time()
    plan(asked, ROUNDS)
    return time.process_time() - began


def alone(work: Callable[..., float], *arguments: Any) -> tuple[float, float]:
    """Do it in a process of its own; return what it returns, and the most megabytes that the process ever had."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_with_memory, work, *arguments).result()


def _with_memory(work: Callable[..., float], *arguments: Any) -> tuple[float, float]:
    return work(*arguments), _peak_kilobytes() / 1e3


def _peak_kilobytes(status: Path = Path("/proc/self/status")) -> float:
    """Return the most that this process ever held; `ru_maxrss` of a new process begins with its parent's on Linux."""
    if status.is_file():
        return float(status.read_text().split("VmHWM:")[1].split()[0])
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
