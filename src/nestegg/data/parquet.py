"""Parquet files as sources of clients, by an index that is made once."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nestegg.data.arrow import Columns, Table, choose, samples, width
from nestegg.data.grouping import group
from nestegg.data.index import Batches, locked, open_index, replacing, sorted_batches, write_index
from nestegg.data.tables import TableSource
from nestegg.errors import InputError

_LOG = getLogger("nestegg.index")
_EVERY = 1.0  # seconds between two words on how far an index is
_FRAME_INDEX = "__index_level_"  # so pandas calls the index of a data frame, if it has no name of its own
_READ_AHEAD = 2**20  # bytes of each column; without it a row group is read as a whole


def from_parquet(
    path: str | os.PathLike[str],
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    index: str | os.PathLike[str] | None = None,
) -> TableSource:
    """Return the clients of a Parquet file, grouped by a column, without reading everything into memory.

    The first call makes an index: a copy of the chosen columns in which every client's rows lie together. It is made
    anew when the file or the choice of columns changes; the logger `nestegg.index` tells how far it is. It holds
    clients' data, as the file does; only this user may read it. Columns, types and order are as for `from_frame`.

    Args:
        path: the file.
        client: the column that names clients, by texts or whole numbers; a number becomes its decimal digits.
        target: the column of targets.
        features: the columns of inputs; None means all others, in their order.
        index: the index's folder; None means beside the file, such as people.parquet.index.

    Example:
        >>> table = pa.table({"user": ["bob", "ada", "bob"], "height": [1.8, 1.6, 1.9], "label": [0, 1, 1]})
        >>> folder = getfixture("tmp_path")
        >>> pq.write_table(table, folder / "people.parquet")
        >>> source = from_parquet(folder / "people.parquet", client="user", target="label")
        >>> list(source.names), source.sizes, source.load("ada")
        (['ada', 'bob'], array([1, 2]), (tensor([[1.6000]]), tensor([1])))
    """
    file = Path(path)
    folder = Path(index) if index is not None else file.with_name(f"{file.name}.index")
    table = read_table(file)
    columns = choose(table, client=client, target=target, features=features)
    facts = {"file": _version(file), "columns": [client, *columns.values]}
    found = open_index(folder, facts)
    if found is not None:
        return found
    if features is None and (left := [name for name in columns.features if name.startswith(_FRAME_INDEX)]):
        raise InputError(
            f"{path}: column {left[0]!r} is the index of a data frame, which says nothing of a sample; write the file "
            "without it (to_parquet(..., index=False)), or name the features."
        )
    try:
        with locked(folder.parent):
            found = open_index(folder, facts)  # if another process made it while this one waited
            if found is None:
                with replacing(folder) as new:
                    _write(new, facts, table=table, client=client, columns=columns)
                    if _version(file) != facts["file"]:
                        raise InputError(f"{file} changed while it was read.")
                found = open_index(folder, facts)
    except OSError as error:
        raise InputError(
            f"index = {str(folder)!r} cannot be made: {error.strerror}; another folder may be named."
        ) from None
    if found is None:
        raise InputError(f"index = {str(folder)!r} was changed while it was made.")
    return found


def read_table(file: Path, use_threads: bool = True) -> Table:
    """Return a Parquet file as a table that is read in batches."""

    def batches(columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(file, buffer_size=_READ_AHEAD, pre_buffer=False) as opened:
                yield from opened.iter_batches(rows, columns=list(columns), use_threads=use_threads)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{file} cannot be read: {_first_line(error)}.") from None

    try:
        return Table(file.name, pq.read_schema(file), batches)
    except FileNotFoundError:
        raise InputError(f"{file} cannot be read: there is no such file.") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as a Parquet file: {_first_line(error)}.") from None


def _write(folder: Path, facts: dict[str, Any], *, table: Table, client: str, columns: Columns) -> None:
    names, ends, places = group(table, client)
    inputs, rows = width(table, columns), int(ends[-1])
    sample = np.dtype([("x", columns.input_type, (inputs,)), ("y", columns.target_type)])
    batches = _told(samples(table, columns, inputs), f"{table.place} is read for its index", rows)
    if places is None:
        ordered: Batches = batches
    else:
        ordered = _told(sorted_batches(folder, places, sample, batches), f"{table.place} is sorted by client", rows)
    write_index(folder, facts, names=names, ends=ends, sample=sample, batches=ordered)


def _told(batches: Batches, what: str, rows: int) -> Batches:
    """The batches; now and then the logger `nestegg.index` is told how far they are."""
    done, last = 0, time.monotonic()
    for x, y in batches:
        yield x, y
        done += len(y)
        if time.monotonic() - last >= _EVERY:
            _LOG.info("%s: %.0f %% of %s rows", what, 100.0 * done / rows, f"{rows:,}")
            last = time.monotonic()


def _version(file: Path) -> dict[str, int | str]:
    """What changes with the file: its size, its time, and the digest of its footer, which has statistics of columns."""
    try:
        with file.open("rb") as opened:
            state = os.fstat(opened.fileno())
            opened.seek(-8, os.SEEK_END)
            length = int.from_bytes(opened.read(4), "little")
            opened.seek(-min(8 + length, state.st_size), os.SEEK_END)
            footer = hashlib.sha256(opened.read(length)).hexdigest()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    return {"bytes": state.st_size, "changed": state.st_mtime_ns, "footer": footer}


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
