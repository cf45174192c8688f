"""Individual budgets: a file with a line a client."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import Array
from nestegg.checks import MAX_ROUNDS, suggestion
from nestegg.errors import InputError
from nestegg.planning.budget import Budget

COLUMNS = ("client", "epsilon", "saving_rate", "transition")


@dataclass(frozen=True, eq=False)
class ClientBudgets:
    """Budgets by client; a saving rate of NaN and a transition of 0 were not given."""

    client: tuple[str, ...]
    epsilon: Array
    saving_rate: Array
    transition: NDArray[np.int64]


def read_clients(path: Path | str, rounds: int = MAX_ROUNDS, spending_rate: float = 1.0) -> ClientBudgets:
    """Read `client,epsilon[,saving_rate,transition]` from a CSV file with a header, or from JSON lines.

    Args:
        path: a .jsonl file holds JSON lines, any other file CSV.
        rounds: no transition may come later.
        spending_rate: no saving rate may be higher.

    Raises:
        InputError: the file cannot be read, or a line of it is wrong; the line is named.
    """
    columns: tuple[list[str], list[float], list[float], list[int]] = ([], [], [], [])
    for where, client, row in _clients_in(path, COLUMNS):
        columns[0].append(client)
        columns[1].append(_number(where, "epsilon", row.get("epsilon")))
        columns[2].append(_number(where, "saving_rate", row.get("saving_rate"), spending_rate, math.nan))
        columns[3].append(_round(where, row.get("transition"), rounds))
    names, epsilon, saving_rate, transition = columns
    return ClientBudgets(tuple(names), np.array(epsilon), np.array(saving_rate), np.array(transition, np.int64))


def read_budgets(path: Path | str, delta: float) -> dict[str, Budget]:
    """Read lifetime budgets, `client,epsilon[,delta]`; the columns of `read_clients` may be there and do not count.

    Args:
        path: as for `read_clients`, with the same errors.
        delta: of those who give none.
    """
    budgets = {}
    for where, client, row in _clients_in(path, (*COLUMNS, "delta")):
        epsilon = _number(where, "epsilon", row.get("epsilon"))
        own = _number(where, "delta", row.get("delta"), default=delta)
        try:
            budgets[client] = Budget(epsilon, own)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    return budgets


def _clients_in(path: Path | str, columns: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every line of a file of clients: where it is, whose it is, and its values."""
    path = Path(path)
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is not a file name.")
    reader = _json_lines if path.suffix.lower() in (".jsonl", ".ndjson") else _csv_lines
    seen: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for line, row in reader(file, str(path), columns):
                where = f"{path} line {line}"
                given = row.get("client")
                if not isinstance(given, str | int | None) or isinstance(given, bool):
                    raise InputError(f"{where}: client = {given!r} must be a name.")
                client = "" if given is None else str(given).strip()
                if not client:
                    raise InputError(f"{where}: client is missing.")
                if client in seen:
                    raise InputError(f"{where}: client = {client!r} is there already, in line {seen[client]}.")
                seen[client] = line
                yield where, client, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not seen:
        raise InputError(f"{path} holds no clients; it must have a line for each: client,epsilon.")


def _csv_lines(file: Any, source: str, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(file)
    header = [name.strip() for name in next(reader, [])]
    for other, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and other in header[0]:
            raise InputError(f"{source} line 1: {header[0]!r} has {name} between its columns; there must be commas.")
    _check_columns(f"{source} line 1", header, columns)
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            raise InputError(
                f"{source} line {reader.line_num}: {len(row)} values; the header has {len(header)} columns."
            )
        yield reader.line_num, dict(zip(header, row, strict=True))


def _json_lines(file: Any, source: str, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError):
            raise InputError(
                f"{source} line {number}: {line.strip()[:60]!r} is not JSON with each name once."
            ) from None
        if not isinstance(row, dict):
            raise InputError(f"{source} line {number}: {line.strip()[:60]!r} is not an object with names and values.")
        _check_columns(f"{source} line {number}", list(row), columns)
        yield number, row


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON would let the last of two equal names win: that is no way to read a budget."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)


def _check_columns(where: str, names: list[str], known: Sequence[str]) -> None:
    missing = [name for name in ("client", "epsilon") if name not in names]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: the column {name!r} is there {names.count(name)} times.")
        if name not in known:
            lacks = f"the column {missing[0]!r} is missing, and " if missing else ""
            near = suggestion(name, missing or known)
            raise InputError(f"{where}: {lacks}{name!r} is not a known column; known are {', '.join(known)}.{near}")
    if missing:
        raise InputError(f"{where}: the column {missing[0]!r} is missing.")


def _number(where: str, field: str, text: Any, at_most: float = math.inf, default: float | None = None) -> float:
    if default is not None and text in (None, ""):
        return default
    try:
        value = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not (math.isfinite(value) and 0.0 < value <= at_most):
        allowed = "a finite number above 0" if at_most == math.inf else f"above 0 and at most {at_most:g}"
        raise InputError(f"{where}: {field} = {text!r} must be {allowed}.")
    return value


def _round(where: str, text: Any, rounds: int) -> int:
    if text in (None, ""):
        return 0
    value = _number(where, "transition", text)
    if value != math.floor(value) or value > rounds:
        raise InputError(f"{where}: transition = {text!r} must be a whole number from 1 to {rounds}.")
    return int(value)
