"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

from nestegg.errors import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """The whole content is in the file, durably, or the file is as it was."""
    if not path.name:
        raise InputError(f"{str(path)!r} is not the name of a file.")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    data = content.encode() if isinstance(content, str) else content
    try:
        try:
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
            sync_folder(path.parent)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None


def make_folder(name: str, folder: Path, mode: int = 0o777) -> None:
    """Before anything takes long: a folder that cannot be made is a mistake of the user's."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{name} {folder} cannot be made: {error.strerror}.") from None


def sync_folder(folder: Path) -> None:
    """Make durable which names a folder holds: without it, a power loss may undo a rename."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
