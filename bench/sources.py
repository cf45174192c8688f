"""Clients from a Parquet file: making its index, opening it, loading cohorts, training; each in a process of its own.

python -m bench.sources [--clients 1000000] [--samples 20] [--cohort 1000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nestegg.data import from_parquet

ROWS = 500_000  # of a row group
ROUNDS = 50
FEATURES, LABELS = 50, 10


def write_file(path: Path, *, clients: int, samples: int, is_sorted: bool) -> None:
    """Write random data, row group by row group; the same for the same numbers."""
    stream = np.random.default_rng(17)
    whose = np.repeat(np.arange(clients, dtype=np.int32), samples)
    if not is_sorted:
        stream.shuffle(whose)
    names = pa.array([f"client-{i:07d}" for i in range(clients)])
    columns = ["user", *(f"x{i}" for i in range(FEATURES)), "label"]
    types = [pa.string(), *[pa.float32()] * FEATURES, pa.int64()]
    schema = pa.schema(list(zip(columns, types, strict=True)))
    with pq.ParquetWriter(path, schema, use_dictionary=["user"], compression="none") as writer:
        for begin in range(0, len(whose), ROWS):
            own = whose[begin : begin + ROWS]
            x = stream.random((FEATURES, len(own)), dtype=np.float32)
            y = stream.integers(LABELS, size=len(own))
            writer.write_table(pa.table([names.take(pa.array(own)), *x, y], schema=schema))


def index(path: Path, _: int) -> dict[str, Any]:
    """Make the index."""
    began = time.perf_counter()
    from_parquet(path, client="user", target="label")
    return {"made in": f"{time.perf_counter() - began:.1f} s"}


def load(path: Path, cohort: int) -> dict[str, Any]:
    """Open the index, and load random cohorts."""
    began = time.perf_counter()
    source = from_parquet(path, client="user", target="label")
    opened = time.perf_counter() - began
    stream, times = np.random.default_rng(), []
    for _ in range(ROUNDS):
        chosen = stream.choice(len(source.names), min(cohort, len(source.names)), replace=False)
        began = time.perf_counter()
        source.load_rows(chosen)
        times.append(1000 * (time.perf_counter() - began))
    return {
        "opened in": f"{opened:.2f} s",
        f"{cohort} clients loaded in": f"{np.median(times):.1f} ms (first {times[0]:.1f}, slowest {max(times):.1f})",
    }


def train(path: Path, cohort: int) -> dict[str, Any]:
    """Train from the file: how long from the import of torch to the end of the first round, and later rounds."""
    began = time.perf_counter()
    from nestegg import Federation  # noqa: F401, torch takes its time to import

    return rounds(from_parquet(path, client="user", target="label"), cohort, began)


def train_from_memory(path: Path, cohort: int) -> dict[str, Any]:
    """Train with all data in memory, by position."""
    source = from_parquet(path, client="user", target="label")
    x, y, sizes = source.load_rows(np.arange(len(source.names)))
    clients = list(zip(x.split(sizes.tolist()), y.split(sizes.tolist()), strict=True))
    return rounds(clients, cohort, time.perf_counter())


def rounds(clients: Any, cohort: int, began: float) -> dict[str, Any]:
    """Do rounds of softmax regression with a cohort of that size in the mean."""
    from torch import nn

    from nestegg import Budget, Federation, Group, LocalTraining, plan

    count = len(getattr(clients, "names", clients))
    made = plan([Group("all", count, Budget(2.0))], rounds=ROUNDS, spending_rate=min(cohort / count, 1.0))
    model = nn.Sequential(nn.Linear(FEATURES, LABELS))
    world = Federation(made, model, clients, local=LocalTraining(epochs=1))
    state, times = world.start(), []
    while state.round < ROUNDS:
        start = time.perf_counter()
        state, _ = world.round(state)
        times.append(time.perf_counter() - start)
        if state.round == 1:
            first = time.perf_counter() - began
    middle = 1000 * float(np.median(times[1:]))
    return {"first round after": f"{first:.1f} s", "later rounds": f"{middle:.1f} ms"}


def measured(work: Callable[[Path, int], dict[str, Any]], path: Path, cohort: int) -> dict[str, Any]:
    """Do it, and add the most memory that this process ever had."""
    found = work(path, cohort)
    return {**found, "peak memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"}


def alone(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Do it in a process of its own, so that memory that is measured is for this alone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # whose process may have workers of its own
        return pool.submit(work, *arguments, **options).result()


def main() -> None:
    """Measure, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("clients", 1_000_000), ("samples", 20), ("cohort", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="where the files are made, in a folder that is removed afterwards")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for is_sorted in (False, True):
            path = Path(folder) / "people.parquet"
            alone(write_file, path, clients=asked.clients, samples=asked.samples, is_sorted=is_sorted)
            print(f"{'sorted' if is_sorted else 'unsorted'} file of {path.stat().st_size / 1e9:.2f} GB")
            for work in (index, load, train, train_from_memory):
                found = alone(measured, work, path, asked.cohort)
                numbers = ", ".join(f"{name} {value}" for name, value in found.items())
                print(f"  {work.__name__}: {numbers}", flush=True)


if __name__ == "__main__":
    main()
