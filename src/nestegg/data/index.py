"""The index of a table: its samples in files, sorted by client with little memory.

An index is a folder of .npy files and index.json. It is made beside its place, made durable, and renamed: a half-made
one is never used. One process makes it; others wait for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.data.names import Names
from nestegg.data.tables import FACTS, ClientDigests, FileRows, TableSource, raw
from nestegg.errors import InputError
from nestegg.files import note_made, sync_folder

_KIND = "nestegg's index of a table of clients"
_DIGESTS = "digests.npy"
_RUN_BYTES, _RUNS = 2**27, 200  # memory for the sort of a run of samples, unless there were more open files than these

Batches = Iterable[tuple[NDArray[Any], NDArray[Any]]]


def open_index(folder: Path, facts: dict[str, Any]) -> TableSource | None:
    """Open the index in a folder, if there is a whole one of which these facts are true."""
    try:
        content = (folder / FACTS).read_text(encoding="utf-8")
        noted = json.loads(content)
        inputs, targets = (FileRows(folder / f"{part}.npy", noted[part]) for part in ("inputs", "targets"))
        ends, text, name_ends = (np.load(folder / f"{part}.npy") for part in ("ends", "names", "name-ends"))
        is_whole = (
            inputs.rows == targets.rows == ends[-1] and len(ends) == len(name_ends) and text.size == name_ends[-1]
        )
        is_same = content == (folder / FACTS).read_text(encoding="utf-8")  # it was not replaced in the meantime
        if not (is_whole and is_same and all(noted[name] == value for name, value in facts.items())):
            return None
        digests = np.load(folder / _DIGESTS) if (folder / _DIGESTS).exists() else None  # older ones have none
        if digests is not None and digests.shape != (len(ends), 16):
            return None
        return TableSource(Names(text, name_ends, noted["are_numbers"]), ends, inputs, targets, digests)
    except (OSError, ValueError, LookupError, TypeError):
        return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes that make an index in this folder waiting; the lock leaves nothing behind."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open still
        os.close(handle)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Give an empty folder, readable by this user alone, that takes the place of the index if all goes well."""
    if folder.exists() and not _is_index(folder):
        raise InputError(f"index = {str(folder)!r} is in the way: it is no index, and is not replaced by one.")
    new, old = rests = [folder.with_name(f".{folder.name}.{word}") for word in ("new", "old")]
    try:
        for rest in rests:  # of a process that was killed
            shutil.rmtree(rest, ignore_errors=True)
        new.mkdir(0o700)
        yield new
        sync_folder(new)
        is_first = not folder.exists()
        if not is_first:
            os.rename(folder, old)
        os.rename(new, folder)
        if is_first:
            note_made(folder)
        sync_folder(folder.parent)
    finally:
        for rest in rests:
            shutil.rmtree(rest, ignore_errors=True)


def write_index(
    folder: Path,
    facts: dict[str, Any],
    *,
    names: Names,
    ends: NDArray[np.int64],
    sample: np.dtype[Any],
    batches: Batches,
) -> None:
    """Write an index into an empty folder, of batches of inputs and targets that are sorted by client."""
    with (
        _RowsWriter(folder / "inputs.npy", (int(ends[-1]), *sample["x"].shape), sample["x"].base) as inputs,
        _RowsWriter(folder / "targets.npy", (int(ends[-1]),), sample["y"]) as targets,
    ):
        clients = ClientDigests(ends)
        for x, y in batches:
            inputs.write(x)
            targets.write(y)
            clients.add(x, y)
        digests = {"inputs": inputs.finish(), "targets": targets.finish()}
    others: dict[str, NDArray[Any]] = {"ends.npy": ends, "names.npy": names.text, "name-ends.npy": names.ends}
    for name, array in (others | {_DIGESTS: clients.done()}).items():
        with _RowsWriter(folder / name, array.shape, array.dtype) as writer:
            writer.write(array)
            writer.finish()
    with (folder / FACTS).open("x", encoding="utf-8") as file:
        json.dump({"kind": _KIND, **facts, "are_numbers": names.are_numbers, **digests}, file)
        file.flush()
        os.fsync(file.fileno())


def sorted_batches(folder: Path, places: NDArray[np.int64], sample: np.dtype[Any], batches: Batches) -> Batches:
    """Yield samples in the order of their places; on the way they lie in the folder, a file for each run of places."""
    kind = np.dtype([("at", np.int64), *((part, sample[part]) for part in ("x", "y"))])
    run = max(_RUN_BYTES // kind.itemsize, -(-len(places) // _RUNS))
    paths = [folder / f"run-{number}" for number in range(-(-len(places) // run))]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("xb")) for path in paths]
        begin = 0
        for x, y in batches:
            rows = np.empty(len(y), kind)
            rows["at"], rows["x"], rows["y"] = places[begin : begin + len(y)], x, y
            begin += len(y)
            which = rows["at"] // run
            ends = np.cumsum(np.bincount(which, minlength=len(files)))
            for file, part in zip(files, np.split(rows[np.argsort(which, kind="stable")], ends[:-1]), strict=True):
                file.write(raw(part))
    for number, path in enumerate(paths):
        rows = np.fromfile(path, kind)
        path.unlink()
        order = np.empty(len(rows), np.int64)
        order[rows["at"] - number * run] = np.arange(len(rows))
        yield rows["x"][order], rows["y"][order]


class _RowsWriter:
    """Writes a .npy file in pieces."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._file, self._digest = path.open("xb"), hashlib.sha256()
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> _RowsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        content = raw(rows)
        self._file.write(content)
        self._digest.update(content)

    def finish(self) -> str:
        """Make the file durable and return the digest of its rows."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._digest.hexdigest()


def _is_index(folder: Path) -> bool:
    """Whether there is an index, whole or not, or nothing: no file of somebody else's is ever removed."""
    try:
        return not any(folder.iterdir()) or json.loads((folder / FACTS).read_text(encoding="utf-8"))["kind"] == _KIND
    except (OSError, ValueError, LookupError, TypeError):
        return False
