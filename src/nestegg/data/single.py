"""Tables that are one client's, in a file of its own.

They are read in worker processes, which were forked: by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from torch import Tensor

from nestegg.data.arrow import MAX_SAMPLES, Table, choose, samples, width
from nestegg.data.parquet import read_table
from nestegg.errors import InputError

Pair = tuple[Tensor, Tensor]


def read_parquet(file: Path, *, target: str, features: Sequence[str] | None) -> Pair:
    """Read one client's Parquet file."""
    return _pair(read_table(file, use_threads=False), target, features)


def read_csv(file: Path, *, target: str, features: Sequence[str] | None) -> Pair:
    """Read one client's CSV file; inputs are float32, for what is a whole number in one file is none in another."""
    table = pyarrow.csv.read_csv(file, read_options=pyarrow.csv.ReadOptions(use_threads=False))
    if not table.num_rows:  # whose columns have no type
        raise InputError(f"{file.name} has no rows.")

    def batches(columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from table.select(columns).to_batches(max_chunksize=rows)

    x, y = _pair(Table(file.name, table.schema, batches), target, features)
    return x.float(), y


def _pair(table: Table, target: str, features: Sequence[str] | None) -> Pair:
    columns = choose(table, client=None, target=target, features=features)
    parts, rows = [], 0
    for x, y in samples(table, columns, width(table, columns)):
        parts.append((x, y))
        rows += len(y)
        if rows > MAX_SAMPLES:
            raise InputError(f"{table.place} has more than {MAX_SAMPLES:,} rows, which is the most that is allowed.")
    if not rows:
        raise InputError(f"{table.place} has no rows.")
    inputs, targets = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True))
    return inputs, targets
