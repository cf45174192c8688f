"""Tables in which the rows of every client lie together, in memory or in files."""

from __future__ import annotations

import hashlib
import json
import math
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.data.names import Names
from nestegg.data.reading import announce_runs, read_runs
from nestegg.errors import InputError

FACTS = "index.json"  # what an index says of its files

Positions = NDArray[np.int64]


class Rows(Protocol):
    """The rows of a table: inputs or targets."""

    @property
    def digest(self) -> str:
        """SHA-256 of the rows."""

    def read(self, starts: Positions, sizes: Positions) -> NDArray[Any]:
        """Return a new array of some runs of rows, one after the other."""

    def announce(self, starts: Positions, sizes: Positions) -> None:
        """Hear of runs of rows that will be read soon."""


class ArrayRows:
    """Rows in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    @property
    def digest(self) -> str:
        """SHA-256 of the rows."""
        return hashlib.sha256(raw(self._array)).hexdigest()

    def read(self, starts: Positions, sizes: Positions) -> NDArray[Any]:
        """Return a new array of some runs of rows, one after the other."""
        befores = np.cumsum(sizes) - sizes
        taken: NDArray[Any] = self._array[np.repeat(starts - befores, sizes) + np.arange(sizes.sum())]
        return taken

    def announce(self, starts: Positions, sizes: Positions) -> None:
        """Do nothing: they are there."""


class FileRows:
    """Rows in a .npy file that is not mapped into memory, so that what was read once takes none.

    Reads are by offset: threads and forked processes share one open file. It stays readable when it is deleted.
    Another machine, to which it is sent by its place, opens its own file there.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self.digest, self._path = digest, path.absolute()
        mapped = np.load(path, mmap_mode="r")  # which also checks that the file is as long as it says
        self.rows, self._shape, self._dtype, self._begin = len(mapped), mapped.shape[1:], mapped.dtype, mapped.offset
        self._file, self._is_cached = os.open(path, os.O_RDONLY), True
        weakref.finalize(self, os.close, self._file)

    def read(self, starts: Positions, sizes: Positions) -> NDArray[Any]:
        """Return a new array of some runs of rows, one after the other."""
        rows = np.empty((int(sizes.sum()), *self._shape), self._dtype)
        if not rows.size:
            return rows
        width = rows.nbytes // len(rows)
        target = rows.reshape(-1).view(np.uint8)
        self._is_cached = read_runs(self._file, self._begin + width * starts, width * sizes, target)
        return rows

    def __reduce__(self) -> tuple[Callable[[Path, str], FileRows], tuple[Path, str]]:
        return reopened, (self._path, self.digest)

    def announce(self, starts: Positions, sizes: Positions) -> None:
        """Have the system read rows ahead, unless the last ones were in its memory and these probably are, too."""
        if not self._is_cached:
            width = self._dtype.itemsize * math.prod(self._shape)
            announce_runs(self._file, self._begin + width * starts, width * sizes)


def reopened(path: Path, digest: str) -> FileRows:
    """Open rows at the same place of another machine, if the index there says that they are the same.

    Raises:
        InputError: they are not there, or others.
    """
    try:
        noted = json.loads((path.parent / FACTS).read_text(encoding="utf-8"))[path.stem]
        if noted == digest:
            return FileRows(path, digest)
    except (OSError, ValueError, LookupError, TypeError):
        raise InputError(f"the index {path.parent} is not there, or damaged.") from None
    raise InputError(f"the index {path.parent} is of other data.")


class TableSource:
    """Clients who are rows of a table; what `from_frame`, `from_parquet` and `from_hugging_face` return.

    Attributes:
        names: all clients: texts sorted by code points, whole numbers by value.
        sizes: samples of each.
    """

    def __init__(
        self, names: Names, ends: Positions, inputs: Rows, targets: Rows, digests: NDArray[np.uint8] | None = None
    ) -> None:
        self.names, self.sizes = names, np.diff(ends, prepend=0)
        self._ends, self._inputs, self._targets, self._digests = ends, inputs, targets, digests

    def load(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a client's inputs and targets, in the order of its rows in the table."""
        return self.load_rows(np.array([self.names.position(name)]))[:2]

    def load_rows(self, positions: Positions) -> tuple[Tensor, Tensor, Positions]:
        """Return inputs and targets of some clients, one after the other, and how many are whose.

        Example:
            >>> names = Names(np.frombuffer(b"adabob", np.uint8), np.array([3, 6]))
            >>> inputs, targets = ArrayRows(np.eye(3, dtype=np.float32)), ArrayRows(np.array([7, 8, 9]))
            >>> TableSource(names, np.array([1, 3]), inputs, targets).load_rows(np.array([1, 0]))[1:]
            (tensor([8, 9, 7]), array([2, 1]))
        """
        starts, sizes = self._runs(positions)
        inputs, targets = (torch.from_numpy(rows.read(starts, sizes)) for rows in (self._inputs, self._targets))
        return inputs, targets, sizes

    def announce_rows(self, positions: Positions) -> None:
        """Hear of clients who will be loaded soon: files are read ahead."""
        for rows in (self._inputs, self._targets):
            rows.announce(*self._runs(positions))

    def fingerprint(self) -> bytes:
        """Return a digest of everybody's name and rows."""
        digest = hashlib.sha256(f"{self._inputs.digest} {self._targets.digest} ".encode())
        for part in (self.names.text, self.names.ends, self._ends):
            digest.update(raw(part))
        return digest.digest()

    def fingerprints(self) -> list[bytes] | None:
        """Return a digest of each client's rows; None where an index was made before there were such."""
        return None if self._digests is None else [one.tobytes() for one in self._digests]

    def _runs(self, positions: Positions) -> tuple[Positions, Positions]:
        """Where the rows of some clients begin, and how many they are."""
        starts = np.where(positions > 0, self._ends[positions - 1], 0)
        return starts, self._ends[positions] - starts


class ClientDigests:
    """Digests of each client's rows, of batches of rows that are sorted by client and may cut through them.

    Example:
        >>> digests = ClientDigests(np.array([1, 3]))
        >>> digests.add(np.eye(2), np.array([7, 8]))
        >>> digests.add(np.eye(1, 2), np.array([9]))
        >>> digests.done().shape
        (2, 16)
    """

    def __init__(self, ends: Positions) -> None:
        self._ends, self._row, self._done = ends.tolist(), 0, bytearray()
        self._parts = hashlib.sha256(), hashlib.sha256()

    def add(self, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        """Add the next rows."""
        both = [raw(part) for part in (inputs, targets)]
        widths = [len(part) // max(len(targets), 1) for part in both]
        begin, first = 0, self._row
        while begin < len(targets):
            end = min(self._ends[len(self._done) // 16] - first, len(targets))
            for digest, part, width in zip(self._parts, both, widths, strict=True):
                digest.update(part[begin * width : end * width])
            if first + end == self._ends[len(self._done) // 16]:
                joint = b"".join(digest.digest() for digest in self._parts)
                self._done += hashlib.sha256(joint).digest()[:16]
                self._parts = hashlib.sha256(), hashlib.sha256()
            begin = end
        self._row += len(targets)

    def done(self) -> NDArray[np.uint8]:
        """Return a row for each client, once all rows were added."""
        return np.frombuffer(bytes(self._done), np.uint8).reshape(-1, 16)


def raw(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array, without a copy if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
