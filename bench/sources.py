"""Clients from a Parquet file: making its index, opening it, and loading cohorts, each in a process of its own.

python -m bench.sources [--clients 1000000] [--samples 20] [--features 50] [--cohort 1000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nestegg.data import from_parquet

ROWS = 500_000  # of a row group
ROUNDS = 50


def write_file(path: Path, *, clients: int, samples: int, features: int, is_sorted: bool) -> None:
    """Write random data, row group by row group; the same for the same numbers."""
    stream = np.random.default_rng(17)
    whose = np.repeat(np.arange(clients, dtype=np.int32), samples)
    if not is_sorted:
        stream.shuffle(whose)
    names = pa.array([f"client-{i:07d}" for i in range(clients)])
    columns = ["user", *(f"x{i}" for i in range(features)), "label"]
    types = [pa.string(), *[pa.float32()] * features, pa.int64()]
    schema = pa.schema(list(zip(columns, types, strict=True)))
    with pq.ParquetWriter(path, schema, use_dictionary=["user"], compression="none") as writer:
        for begin in range(0, len(whose), ROWS):
            own = whose[begin : begin + ROWS]
            x = stream.random((features, len(own)), dtype=np.float32)
            y = stream.integers(10, size=len(own))
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


def measured(work: Callable[[Path, int], dict[str, Any]], path: Path, cohort: int) -> dict[str, Any]:
    """Do it, and add the most memory that this process ever had."""
    found = work(path, cohort)
    return {**found, "peak memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"}


def alone(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Do it in a process of its own, so that memory that is measured is for this alone."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments, options)


def main() -> None:
    """Measure, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("clients", 1_000_000), ("samples", 20), ("features", 50), ("cohort", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="where the files are made, in a folder that is removed afterwards")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for is_sorted in (False, True):
            path = Path(folder) / "people.parquet"
            numbers = {"clients": asked.clients, "samples": asked.samples, "features": asked.features}
            alone(write_file, path, **numbers, is_sorted=is_sorted)
            print(f"{'sorted' if is_sorted else 'unsorted'} file of {path.stat().st_size / 1e9:.2f} GB")
            for work in (index, load):
                found = alone(measured, work, path, asked.cohort)
                print("  " + ", ".join(f"{name} {value}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
