"""Runs that train on another machine: a run's folder goes there and comes back, whole."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from nestegg.configuration.config import Config
from nestegg.errors import InputError
from nestegg.runs import resume_run, start_run
from nestegg.training.blocks import one_thread


class Errand(NamedTuple):
    """A run to be brought to its end elsewhere.

    Attributes:
        config: what it trains.
        name: of its folder.
        begun: the folder, where it stopped half-way.
    """

    config: Config
    name: str
    begun: bytes | None


def errand(config: Config, folder: Path) -> Errand:
    """Return what another machine needs to bring a run to its end.

    Raises:
        InputError: a ledger pays for it, which would be charged again for what is lost with a node.
    """
    if config.ledger.url is not None:
        raise InputError(
            f"ledger.url = {config.ledger.url!r} must be left out where whole runs train on a cluster: what is lost "
            "with a node would be paid for twice."
        )
    return Errand(config, folder.name, packed_folder(folder) if folder.exists() else None)


def run_errand(one: Errand) -> bytes:
    """Bring a run to its end in a folder of this machine that is gone afterwards; return what it held."""
    with tempfile.TemporaryDirectory() as place, one_thread():
        folder = Path(place) / one.name
        if one.begun is None:
            start_run(one.config, folder)
        else:
            put_folder(one.begun, folder)
            resume_run(folder)
        return packed_folder(folder)


def packed_folder(folder: Path) -> bytes:
    """Return a folder as bytes, with the rights of its files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(folder, arcname=".")
    return file.getvalue()


def put_folder(content: bytes, folder: Path) -> None:
    """Write such a folder in the place of what there is, atomically."""
    new, old = (folder.with_name(f".{folder.name}.{word}") for word in ("new", "old"))
    if old.exists() and not folder.exists():  # a process was killed between the two names
        os.rename(old, folder)
    for rest in (new, old):  # of a process that was killed
        shutil.rmtree(rest, ignore_errors=True)
    new.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(new, filter="tar")
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old, ignore_errors=True)
