"""Rows of Arrow tables, grouped by client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nestegg.data.arrow import BATCH, Table, column_type, decoded, refuse_missing
from nestegg.data.joining import check_name
from nestegg.data.names import Names
from nestegg.errors import InputError

MAX_SAMPLES = 1_000_000  # of one client: more is a mistake, such as a column that is no client's name
_LOOKED_UP = 2**20  # rows whose clients are looked up at a time


class Grouping(NamedTuple):
    """Whose rows are which.

    Attributes:
        names: all clients.
        ends: where each client's rows end when all are sorted by client.
        places: where each row goes; None if they are sorted already.
    """

    names: Names
    ends: NDArray[np.int64]
    places: NDArray[np.int64] | None


def group(table: Table, column: str) -> Grouping:
    """Group rows by client, whose names are texts or whole numbers; numbers become their decimal digits."""
    known, codes = None, [np.empty(0, np.int32)]
    for chunk in _gathered(_clients(table, column)):
        encoded = chunk.dictionary_encode()
        seen = encoded.dictionary
        known = seen.slice(0, 0) if known is None else known
        number = pc.index_in(seen, value_set=known)
        is_new = number.is_null()
        numbers = number.fill_null(0).to_numpy(zero_copy_only=False).copy()
        new = is_new.to_numpy(zero_copy_only=False)
        numbers[new] = len(known) + np.arange(new.sum())
        known = pa.concat_arrays([known, seen.filter(is_new)])
        codes.append(numbers[encoded.indices.to_numpy()])
    if known is None:
        raise InputError(f"{table.place} has no rows.")
    order = pc.sort_indices(known).to_numpy()
    names = _names(table, known.take(pa.array(order)))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    rows = rank[np.concatenate(codes)]
    sizes = np.bincount(rows, minlength=len(names))
    if sizes.max() > MAX_SAMPLES:
        most = int(sizes.argmax())
        raise InputError(
            f"{table.place}: client {names[most]!r} has {sizes[most]:,} rows; at most {MAX_SAMPLES:,} are allowed."
        )
    return Grouping(names, np.cumsum(sizes), _places(rows))


def _clients(table: Table, column: str) -> Iterator[pa.Array]:
    """The column of clients, as texts or whole numbers."""
    kind = column_type(table, "client", column)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not is_text and not pa.types.is_integer(kind):
        raise InputError(f"{table.place}: column {column!r} is of type {kind}; clients are texts or whole numbers.")
    for batch in table.batches([column], BATCH):
        names = decoded(batch.column(column))
        if names.null_count:
            refuse_missing(table, column)
        yield names.cast(pa.large_string() if is_text else kind)


def _gathered(chunks: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """The same in larger chunks, none of them empty."""
    waiting: list[pa.Array] = []
    for chunk in chunks:
        waiting.append(chunk)
        if sum(map(len, waiting)) >= _LOOKED_UP:
            yield pa.concat_arrays(waiting)
            waiting = []
    if sum(map(len, waiting)):
        yield pa.concat_arrays(waiting)


def _names(table: Table, sorted_clients: pa.Array) -> Names:
    texts = sorted_clients.cast(pa.large_string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise InputError(f"{table.place} has clients whose names are no texts in UTF-8.") from None
    _, offsets, text = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(texts) + 1]
    names = Names(np.frombuffer(text or b"", np.uint8)[: ends[-1]], ends[1:], pa.types.is_integer(sorted_clients.type))
    check_name(names[0])  # an empty one is the first
    return names


def _places(clients: NDArray[np.int32]) -> NDArray[np.int64] | None:
    """Where each row goes when rows are sorted by client and otherwise keep their order."""
    if bool((clients[1:] >= clients[:-1]).all()):
        return None
    places = np.empty(len(clients), np.int64)
    places[np.argsort(clients, kind="stable")] = np.arange(len(clients))
    return places
