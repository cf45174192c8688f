"""Data frames of pandas and polars as sources of clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from nestegg.data.arrow import Table, choose, samples, width
from nestegg.data.grouping import group
from nestegg.data.tables import ArrayRows, ClientDigests, TableSource
from nestegg.errors import InputError


def from_frame(frame: Any, *, client: str, target: str, features: Sequence[str] | None = None) -> TableSource:
    """Return the clients of a data frame of pandas or polars, grouped by a column.

    The data is copied once, sorted by client; a client's rows keep their order. Inputs are of type int64 if all their
    columns are of int32 or int64, as tokens are, and float32 otherwise; targets are int64, or float32 if they are
    floating-point numbers.

    Args:
        frame: the data frame.
        client: the column that names clients, by texts or whole numbers; a number becomes its decimal digits.
        target: the column of targets.
        features: the columns of inputs, numbers or truth values, or one column of lists of one length; None means all
            others, in their order.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"user": ["bob", "ada", "bob"], "height": [1.8, 1.6, 1.9], "label": [0, 1, 1]})
        >>> source = from_frame(frame, client="user", target="label")
        >>> list(source.names), source.load("bob")
        (['ada', 'bob'], (tensor([[1.8000],
                [1.9000]]), tensor([0, 1])))
    """
    if not hasattr(frame, "__arrow_c_stream__") or not hasattr(frame, "columns"):
        raise InputError(f"frame of type {type(frame).__name__} must be a data frame of pandas or polars.")
    try:
        table = pa.RecordBatchReader.from_stream(frame).read_all()
    except (pa.ArrowException, ValueError) as error:  # such as a column of mixed types, or two of one name
        raise InputError(f"frame cannot be read: {': '.join(map(str, error.args))}.") from None
    table = table.select([str(name) for name in frame.columns])  # without the index of pandas

    def batches(columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from table.select(columns).to_batches(max_chunksize=rows)

    return grouped(Table("frame", table.schema, batches), client=client, target=target, features=features)


def grouped(table: Table, *, client: str, target: str, features: Sequence[str] | None) -> TableSource:
    """Return the clients of a table that is copied into memory, sorted by client."""
    columns = choose(table, client=client, target=target, features=features)
    names, ends, places = group(table, client)
    rows, inputs = int(ends[-1]), width(table, columns)
    x, y = np.empty((rows, inputs), columns.input_type), np.empty(rows, columns.target_type)
    begin, digests = 0, ClientDigests(ends)
    for batch_x, batch_y in samples(table, columns, inputs):
        end = begin + len(batch_y)
        at = slice(begin, end) if places is None else places[begin:end]
        x[at], y[at] = batch_x, batch_y
        begin = end
    digests.add(x, y)
    return TableSource(names, ends, ArrayRows(x), ArrayRows(y), digests.done())
