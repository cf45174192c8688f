"""Runs of federations made in Python: what identifies them, and whether somebody goes on with the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from nestegg.training.values import settings_of, values_of

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


def check_same(folder: Path, federation: Federation, ledger: str | Path | None, version: str) -> None:
    """Refuse to go on with another federation than a run began with; nothing is written.

    A setting that did not exist when the run began must be at its default.
    """
    record, now = read_record(folder), values_of(federation, version)
    then = settings_of(LocalTraining(), Mechanics(), Performance()) | record.values
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
