"""Atomic, durable writes, and what a refused command takes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from nestegg.errors import InputError

_MADE: ContextVar[list[Path] | None] = ContextVar("folders made by what may still be refused", default=None)


def write_atomically(path: Path, content: str | bytes | Iterable[str]) -> None:
    """The whole content is in the file, durably, or the file is as it was; text may come in pieces."""
    if not path.name:
        raise InputError(f"{str(path)!r} is not the name of a file.")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    pieces = (content,) if isinstance(content, str | bytes) else content
    try:
        try:
            with beside.open("wb") as file:
                for piece in pieces:
                    file.write(piece.encode() if isinstance(piece, str) else piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
            sync_folder(path.parent)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None


def write_all(folder: Path, files: Iterable[tuple[str, str | bytes]]) -> None:
    """Write files into a folder, each atomically, as they come."""
    for name, content in files:
        write_atomically(folder / name, content)


def make_folder(name: str, folder: Path, mode: int = 0o777) -> None:
    """Before anything takes long: a folder that cannot be made is a mistake of the user's."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{name} {folder} cannot be made: {error.strerror}.") from None


@contextmanager
def nothing_left() -> Iterator[None]:
    """Remove the folders that are made inside if an `InputError` leaves: a refused command writes nothing."""
    made: list[Path] = []
    token = _MADE.set(made)
    try:
        yield
    except InputError:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        _MADE.reset(token)


def note_made(folder: Path) -> None:
    """Note that a folder was made, and did not exist before, for `nothing_left`."""
    if (made := _MADE.get()) is not None:
        made.append(folder)


def sync_folder(folder: Path) -> None:
    """Make durable which names a folder holds: without it, a power loss may undo a rename."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Where downloads and scripts of pages are kept: the user's cache, by the convention of the desktop."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nestegg"
