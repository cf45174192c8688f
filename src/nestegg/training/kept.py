"""Measurements in a file of JSON lines, durable as they come, so that an interrupted measurement goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nestegg.errors import InputError, StoppedError
from nestegg.files import sync_folder

Place = tuple[int, int]  # a round, from 1, and a draw of noise, from 0


class Kept:
    """A file of measurements, or none. Each line is sealed with the digest of what was measured, and its numbers.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "influence.json.part"
    >>> kept = Kept(path)
    >>> kept.read("of a training")
    {}
    >>> kept.add((3, 0), 0.25)
    >>> Kept(path).read("of a training"), Kept(path).read("of another")
    ({(3, 0): 0.25}, {})
    """

    def __init__(self, path: Path | str | None) -> None:
        self.path = None if path is None else Path(path)
        if self.path is not None and (self.path.is_dir() or not self.path.parent.is_dir()):
            raise InputError(f"keep = {str(path)!r} must be a file in a folder that exists.")

    def read(self, digest: str) -> dict[Place, float]:
        """Return what is kept of this digest, to which further measurements belong; damaged lines are left out."""
        self._digest = digest
        found = {}
        for line in self._lines():
            with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
                content = json.loads(line)
                place, value = (int(content["round"]), int(content["draw"])), float(content["rise"])
                if content["seal"] == self._seal(place, value):
                    found[place] = value
        return found

    def add(self, place: Place, value: float) -> None:
        """Write a measurement, durably."""
        if self.path is None:
            return
        line = json.dumps({"round": place[0], "draw": place[1], "rise": value, "seal": self._seal(place, value)})
        try:
            with self.path.open("ab") as file:
                file.write(f"\n{line}\n".encode())  # what an interruption left without an end stays a line of its own
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}.") from None

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Say of an interruption inside how to go on, where there is a file."""
        try:
            yield
        except KeyboardInterrupt:
            if self.path is None:
                raise
            raise StoppedError(f"It was interrupted. {self.go_on}") from None

    @property
    def go_on(self) -> str:
        """A sentence that says how to go on."""
        return f"Finished measurements are kept in {self.path}; the same command or call goes on."

    def _lines(self) -> list[bytes]:
        if self.path is None or not self.path.exists():
            return []
        try:
            return self.path.read_bytes().splitlines()
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}.") from None

    def _seal(self, place: Place, value: float) -> str:
        return hashlib.sha256(f"{self._digest} {place} {value!r}".encode()).hexdigest()[:32]
