"""Runs of federations made in Python: what identifies them, and whether somebody goes on with the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nestegg.configuration.description import (
    FORMAT,
    Description,
    RunRecord,
    of_record,
    read_names,
    read_record,
    with_names,
)
from nestegg.errors import InputError
from nestegg.release import stamp
from nestegg.runs.folder import RunFolder
from nestegg.runs.payment import new_run_name
from nestegg.training import Federation, LocalTraining, Mechanics, Performance

_FILE_URL = "sqlite:///"


def describe(federation: Federation, folder: Path, ledger: str | Path | None, version: str) -> Description:
    """Describe a new run of a federation in a folder."""
    record = RunRecord(
        format=FORMAT,
        run=new_run_name(folder),
        ledger=_url(ledger),
        model=type(federation.model).__name__,
        values=values_of(federation, version),
        note=stamp(federation.randomness.reproducible).get("note"),
    )
    names = federation.names
    budgets = tuple(row.group.budget for row in federation.plan.groups for _ in range(row.group.clients))
    return with_names(of_record(record, lambda: (names, budgets)), names)


def values_of(federation: Federation, version: str) -> dict[str, Any]:
    """Return all that a run's results depend on, but for data and clients, by name.

    Functions count by their names, objects by their values: whoever changes what one does says so by another version.
    """
    first = federation.start().model.detach().cpu().contiguous()
    shapes = [[name, *shape] for name, shape in zip(federation.layout.names, federation.layout.shapes, strict=True)]
    return {
        "plan": federation.plan.digest,
        "layout": hashlib.sha256(json.dumps(shapes).encode()).hexdigest(),
        "weights": hashlib.sha256(first.numpy().tobytes()).hexdigest(),
        "version": version,
        "rates": list(federation.rates),
        **_settings(federation.local, federation.mechanics, federation.performance),
    }


def check_same(folder: Path, federation: Federation, ledger: str | Path | None, version: str) -> None:
    """Refuse to go on with another federation than a run began with; nothing is written.

    A setting that did not exist when the run began must be at its default.
    """
    record, now = read_record(folder), values_of(federation, version)
    then = _settings(LocalTraining(), Mechanics(), Performance()) | record.values
    for name in dict.fromkeys([*now, *then]):
        began, given = then.get(name), now.get(name)
        if name != "plan" and began != given and not _was_noted_by_class(began, given):
            raise InputError(
                f"{name} = {given!r} is not what the run in {folder} began with, {began!r}: it would be another run."
            )
    if RunFolder(folder).plan_of(federation.plan.digest) is None:
        raise InputError(f"plan {federation.plan.digest[:16]} is not a plan of the run in {folder}.")
    if ledger is not None and _url(ledger) != record.ledger:
        raise InputError(f"ledger = {str(ledger)!r} is not the ledger of the run in {folder}.")
    kept, names = read_names(folder), federation.names
    if names != kept:
        raise InputError(f"clients are not those of the run in {folder}: {_difference(kept, names)}.")


def _settings(local: LocalTraining, mechanics: Mechanics, performance: Performance) -> dict[str, Any]:
    """All settings by name; of performance, what changes results."""
    return {**_flat("local", local), **_flat("mechanics", mechanics), "precision": performance.precision}


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Return a value by name as JSON knows it, the fields of a dataclass each by its own; a function is its name."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = (_flat(f"{name}.{one.name}", getattr(value, one.name)) for one in fields(value))
        return {key: plain for part in parts for key, plain in part.items()}
    if value is None or isinstance(value, str | int | float):
        return {name: value}
    if callable(value):
        return {name: _name_of(value)}
    if isinstance(value, tuple | list) and all(isinstance(one, int | float) for one in value):
        return {name: list(value)}  # a curve of learning rates
    return {name: repr(value)}


def _name_of(function: Callable[..., Any]) -> str:
    """Return how a function, or what it is partially applied to, is called."""
    if isinstance(function, partial):
        given = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in sorted(function.keywords.items()))]
        return f"{_name_of(function.func)}({', '.join(given)})"
    if hasattr(function, "__qualname__"):
        return f"{function.__module__}.{function.__qualname__}"
    kind = type(function)
    return f"{kind.__module__}.{kind.__qualname__}{{{', '.join(_values(function))}}}"


def _values(one: Any) -> Iterator[str]:
    """Yield what an object with parameters, such as a loss, consists of: plain values, and a digest of tensors."""
    parts = dict(one.named_modules()) if isinstance(one, nn.Module) else {"": one}
    for path, part in parts.items():
        for name, value in sorted(getattr(part, "__dict__", {}).items()):
            if not name.startswith("_") and isinstance(value, str | int | float | tuple | list | None):
                yield f"{path + '.' if path else ''}{name}={value!r}"
    tensors = one.state_dict() if isinstance(one, nn.Module) else getattr(one, "__dict__", {})
    for name, value in tensors.items():
        if isinstance(value, Tensor):
            content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            digest = hashlib.sha256(f"{value.dtype} {tuple(value.shape)}\n".encode() + content).hexdigest()
            yield f"{name}={digest[:16]}"


def _was_noted_by_class(began: Any, given: Any) -> bool:
    """Whether an older version began the run, which noted an object by its class alone."""
    return isinstance(began, str) and isinstance(given, str) and given.startswith(f"{began}{{")


def _difference(kept: Sequence[str], now: Sequence[str]) -> str:
    """Say how two lists of names differ."""
    gone, new = sorted(set(kept) - set(now)), sorted(set(now) - set(kept))
    parts = [f"{len(gone)} are missing, such as {gone[0]!r}"] if gone else []
    parts += [f"{len(new)} are new, such as {new[0]!r}"] if new else []
    return " and ".join(parts) or "they are in another order"


def _url(ledger: str | Path | None) -> str | None:
    """Return a ledger as a URL that means the same from every folder."""
    if ledger is None:
        return None
    if not isinstance(ledger, str | Path):
        raise InputError(f"ledger = {ledger!r} must be a URL, such as 'sqlite:///ledger.db', or a file.")
    file = str(ledger).removeprefix(_FILE_URL)
    return str(ledger) if "://" in file else f"{_FILE_URL}{Path(file).resolve()}"
