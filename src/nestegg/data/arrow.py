"""Arrow tables as clients' inputs and targets: which columns, of which types, and whose rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nestegg.checks import suggestion
from nestegg.data.names import Names
from nestegg.data.sources import check_name
from nestegg.errors import InputError

MAX_SAMPLES = 1_000_000  # of one client: more is a mistake, such as a column that is no client's name
_BATCH = 65536  # rows that are converted at a time
_CELLS = 2**22  # and numbers: fewer rows if they are long
_GROUPED = 2**20  # rows whose clients are looked up at a time
_TOKENS = (pa.int32(), pa.int64())  # whole numbers that stay what they are, as tensors of these types do


@dataclass(frozen=True)
class Table:
    """A table that is read in batches, as often as needed.

    Attributes:
        place: how messages call it.
        schema: its columns and their types.
        batches: gives some of its columns, all rows in order, at most so many at a time.
    """

    place: str
    schema: pa.Schema
    batches: Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Columns:
    """The columns of samples.

    Attributes:
        target: holds targets.
        features: hold inputs: a number each, or one column of lists.
        is_list: whether it is one column of lists.
        input_type: int64 where all inputs are of int32 or int64, such as tokens; float32 elsewhere.
        target_type: float32 where targets are floating-point numbers; int64 elsewhere.
    """

    target: str
    features: tuple[str, ...]
    is_list: bool
    input_type: type[np.generic]
    target_type: type[np.generic]

    @property
    def values(self) -> tuple[str, ...]:
        """What a sample consists of."""
        return (*self.features, self.target)


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


def choose(table: Table, *, client: str | None, target: str, features: Sequence[str] | None = None) -> Columns:
    """Choose the columns of samples: inputs are all but clients and targets, unless they are named."""
    if isinstance(features, str) or (features is not None and not features):
        raise InputError(f"features = {features!r} must be a list of columns.")
    if client is not None:
        _column(table, "client", client)
    target_kind = _column(table, "target", target)
    chosen = tuple(features if features is not None else (n for n in table.schema.names if n not in (client, target)))
    if client == target or {client, target} & set(chosen):
        own = "" if client is None else f"client = {client!r}, "
        raise InputError(f"{own}target = {target!r} and features must be different columns.")
    if len(set(chosen)) < max(len(chosen), 1):
        raise InputError(f"features = {list(chosen)} must be different columns, at least one.")
    kinds = [_column(table, "features", name) for name in chosen]
    is_list = len(kinds) == 1 and _is_list(kinds[0])
    if is_list:
        kinds = [kinds[0].value_type]
    for name, kind in zip((*chosen, target), (*kinds, target_kind), strict=True):
        if not _is_number(kind):
            allowed = "numbers or truth values" + (", or be one column of lists of them" if name != target else "")
            raise InputError(f"{table.place}: column {name!r} is of type {kind}; it must hold {allowed}.")
    return Columns(
        target,
        chosen,
        is_list,
        np.int64 if all(kind in _TOKENS for kind in kinds) else np.float32,
        np.float32 if pa.types.is_floating(target_kind) else np.int64,
    )


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


def width(table: Table, columns: Columns) -> int:
    """Return how many inputs a sample has."""
    if not columns.is_list:
        return len(columns.features)
    (name,) = columns.features
    for batch in table.batches(columns.features, 1):
        if len(batch):
            return int(pc.list_value_length(batch.column(name)).fill_null(0)[0].as_py())
    raise InputError(f"{table.place} has no rows.")


def samples(table: Table, columns: Columns, inputs: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield batches of inputs and targets, in the order of rows; a value that is no finite number is refused."""
    for batch in table.batches(columns.values, max(1, min(_BATCH, _CELLS // max(inputs, 1)))):
        x = np.empty((len(batch), inputs), columns.input_type)
        if columns.is_list:
            (name,) = columns.features
            x[:] = _lists(table, name, batch.column(name), inputs)
        else:
            for at, name in enumerate(columns.features):
                x[:, at] = _numbers(table, name, batch.column(name))
        if not np.isfinite(x).all():  # also what is too large for single precision
            at = int(np.isfinite(x).all(axis=0).argmin())
            _refuse_missing(table, columns.features[0 if columns.is_list else at])
        y = _numbers(table, columns.target, batch.column(columns.target)).astype(columns.target_type)
        if not np.isfinite(y).all():
            _refuse_missing(table, columns.target)
        yield x, y


def _column(table: Table, field: str, name: object) -> pa.DataType:
    """The type of a column that must be there, once."""
    found = table.schema.get_all_field_indices(name) if isinstance(name, str) else []
    if len(found) != 1:
        what = f"{len(found)} columns" if found else "no column"
        near = "" if found else suggestion(name, table.schema.names)
        raise InputError(f"{field} = {name!r}: {table.place} has {what} of that name.{near}")
    return table.schema.field(found[0]).type


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _clients(table: Table, column: str) -> Iterator[pa.Array]:
    """The column of clients, as texts or whole numbers."""
    kind = _column(table, "client", column)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not is_text and not pa.types.is_integer(kind):
        raise InputError(f"{table.place}: column {column!r} is of type {kind}; clients are texts or whole numbers.")
    for batch in table.batches([column], _BATCH):
        names = _decoded(batch.column(column))
        if names.null_count:
            _refuse_missing(table, column)
        yield names.cast(pa.large_string() if is_text else kind)


def _decoded(column: pa.Array) -> pa.Array:
    """A column of categories as what they are; others as they are."""
    if not pa.types.is_dictionary(column.type):
        return column
    is_view = pa.types.is_string_view(column.dictionary.type)  # of which Arrow takes no parts
    return (column.dictionary.cast(pa.large_string()) if is_view else column.dictionary).take(column.indices)


def _gathered(chunks: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """The same in larger chunks, none of them empty."""
    waiting: list[pa.Array] = []
    for chunk in chunks:
        waiting.append(chunk)
        if sum(map(len, waiting)) >= _GROUPED:
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


def _numbers(table: Table, name: str, column: pa.Array) -> NDArray[Any]:
    if column.null_count:
        _refuse_missing(table, name)
    with np.errstate(over="ignore"):
        numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return numbers.astype(np.float32) if numbers.dtype.kind == "f" else numbers


def _lists(table: Table, name: str, column: pa.Array, inputs: int) -> NDArray[Any]:
    if column.null_count:
        _refuse_missing(table, name)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if not inputs or (lengths != inputs).any():
        other = int(lengths[lengths != inputs][0]) if inputs else 0
        raise InputError(
            f"{table.place}: column {name!r} has lists of {inputs} and of {other} values; all must be of one length, "
            "at least 1."
        )
    return _numbers(table, name, column.flatten()).reshape(len(column), inputs)


def _refuse_missing(table: Table, name: str) -> NoReturn:
    """Say how many values of a column are missing: it is read once more."""
    missing = 0
    for batch in table.batches([name], 1024):  # few, if they are long lists
        column = _decoded(batch.column(name))
        if _is_list(column.type):
            missing += column.null_count
            column = column.flatten()
        if pa.types.is_floating(column.type):
            with np.errstate(over="ignore"):
                numbers = column.to_numpy(zero_copy_only=False).astype(np.float32)  # what is missing is NaN
            missing += int((~np.isfinite(numbers)).sum())
        else:
            missing += column.null_count
    raise InputError(
        f"{table.place}: column {name!r} has missing, NaN or infinite values ({missing:,}); there must be none."
    )
