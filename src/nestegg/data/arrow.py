"""Arrow tables as inputs and targets: which columns, and of which types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nestegg.checks import suggestion
from nestegg.errors import InputError

BATCH = 65536  # rows that are converted at a time
_CELLS = 2**22  # and numbers: fewer rows if they are long
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


def choose(table: Table, *, client: str | None, target: str, features: Sequence[str] | None = None) -> Columns:
    """Choose the columns of samples: inputs are all but clients and targets, unless they are named."""
    if isinstance(features, str) or (features is not None and not features):
        raise InputError(f"features = {features!r} must be a list of columns.")
    if client is not None:
        column_type(table, "client", client)
    target_kind = column_type(table, "target", target)
    chosen = tuple(features if features is not None else (n for n in table.schema.names if n not in (client, target)))
    if client == target or {client, target} & set(chosen):
        own = "" if client is None else f"client = {client!r}, "
        raise InputError(f"{own}target = {target!r} and features must be different columns.")
    if len(set(chosen)) < max(len(chosen), 1):
        raise InputError(f"features = {list(chosen)} must be different columns, at least one.")
    kinds = [column_type(table, "features", name) for name in chosen]
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
    for batch in table.batches(columns.values, max(1, min(BATCH, _CELLS // max(inputs, 1)))):
        x = np.empty((len(batch), inputs), columns.input_type)
        if columns.is_list:
            (name,) = columns.features
            x[:] = _lists(table, name, batch.column(name), inputs)
        else:
            for at, name in enumerate(columns.features):
                x[:, at] = _numbers(table, name, batch.column(name))
        if not np.isfinite(x).all():  # also what is too large for single precision
            at = int(np.isfinite(x).all(axis=0).argmin())
            refuse_missing(table, columns.features[0 if columns.is_list else at])
        targets = _numbers(table, columns.target, batch.column(columns.target))
        if targets.dtype == np.uint64 and targets.max(initial=0) > np.iinfo(np.int64).max:
            raise InputError(
                f"{table.place}: column {columns.target!r} has values of 2^63 or more; int64 must hold them."
            )
        y = targets.astype(columns.target_type)
        if not np.isfinite(y).all():
            refuse_missing(table, columns.target)
        yield x, y


def column_type(table: Table, field: str, name: object) -> pa.DataType:
    """Return the type of a column that must be there, once."""
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


def decoded(column: pa.Array) -> pa.Array:
    """Return a column of categories as what they are, and others as they are."""
    if not pa.types.is_dictionary(column.type):
        return column
    is_view = pa.types.is_string_view(column.dictionary.type)  # of which Arrow takes no parts
    return (column.dictionary.cast(pa.large_string()) if is_view else column.dictionary).take(column.indices)


def _numbers(table: Table, name: str, column: pa.Array) -> NDArray[Any]:
    if column.null_count:
        refuse_missing(table, name)
    with np.errstate(over="ignore"):
        numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return numbers.astype(np.float32) if numbers.dtype.kind == "f" else numbers


def _lists(table: Table, name: str, column: pa.Array, inputs: int) -> NDArray[Any]:
    if column.null_count:
        refuse_missing(table, name)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    if not inputs or (lengths != inputs).any():
        other = int(lengths[lengths != inputs][0]) if inputs else 0
        raise InputError(
            f"{table.place}: column {name!r} has lists of {inputs} and of {other} values; all must be of one length, "
            "at least 1."
        )
    return _numbers(table, name, column.flatten()).reshape(len(column), inputs)


def refuse_missing(table: Table, name: str) -> NoReturn:
    """Say how many values of a column are missing: it is read once more."""
    missing = 0
    for batch in table.batches([name], 1024):  # few, if they are long lists
        column = decoded(batch.column(name))
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
