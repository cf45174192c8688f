"""Watching runs: files are read again when they change, and how long rounds take is known from having seen them end.

How long a round takes tells of its secret cohort. What runs note about it is private and is not read; what is said here
is what anybody at this screen sees, and only roughly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nestegg.errors import InputError
from nestegg.runs.folder import RunFolder
from nestegg.studio.place import Place
from nestegg.studio.runs import SEEN, Run, damaged_row, find_runs, read_run

_FRESH = 0.25  # seconds for which a look serves all who watch
_FIND_EVERY = 2.0  # seconds: looking for new folders takes longer than looking at known ones
_ABSENT = 5.0  # seconds without a look, after which nothing is known about how long rounds take

Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass
class Pace:
    """When rounds of a run ended, as far as that was seen: the first and the last one."""

    first: tuple[int, float]
    last: tuple[int, float]

    def left(self, rounds: int, now: float) -> str:
        """Return how long it will take, in words; nothing before two rounds were seen to end."""
        done, since = self.last[0] - self.first[0], self.last[1] - self.first[1]
        if done < 1:
            return ""
        seconds = since / done * (rounds - self.last[0]) - (now - self.last[1])
        return _roughly(max(seconds, 0.0))


class Watch:
    """All runs below a folder.

    Args:
        place: where they are.
        clock: tells seconds.
    """

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._place, self._clock = place, clock
        self._lock = threading.Lock()  # several pages may be open
        self._read: dict[str, tuple[Signature, Run | str]] = {}
        self._paces: dict[str, Pace] = {}
        self._paths: tuple[list[str], bool] = ([], True)
        self._found = self._looked = float("-inf")
        self._table: dict[str, Any] = {}

    def table(self) -> dict[str, Any]:
        """Return a row for every run, and whether all folders were looked into."""
        with self._lock:
            now = self._clock()
            if now - self._looked < _FRESH:
                return self._table
            if now - self._looked > _ABSENT:
                self._paces.clear()
            if now - self._found > _FIND_EVERY:
                self._paths, self._found = find_runs(self._place), now
                self._read = {path: self._read[path] for path in self._paths[0] if path in self._read}
            self._looked = now
            self._table = {"runs": [self._row(path, now) for path in self._paths[0]], "all": self._paths[1]}
            return self._table

    def run(self, path: str) -> Run:
        """Return a run.

        Raises:
            InputError: there is none, or it is damaged.
        """
        with self._lock:
            found = self._current(path)
        if isinstance(found, str):
            raise InputError(found)
        return found

    def _row(self, path: str, now: float) -> dict[str, Any]:
        try:
            run = self._current(path)
            if isinstance(run, str):
                return {**damaged_row(path, run), "left": ""}
            row = run.row(RunFolder(self._place.inside(path)))
        except (InputError, OSError) as error:
            return {**damaged_row(path, str(error)), "left": ""}
        return {**row, "left": self._left(path, row, now)}

    def _left(self, path: str, row: dict[str, Any], now: float) -> str:
        if row["state"] != "running":
            self._paces.pop(path, None)
            return ""
        seen = self._paces.setdefault(path, Pace((-1, now), (row["done"], now)))
        if row["done"] != seen.last[0]:  # a round has ended, just now
            seen.last = (row["done"], now)
            if seen.first[0] < 0:
                seen.first = seen.last
        return seen.left(row["rounds"], now) if seen.first[0] >= 0 else ""

    def _current(self, path: str) -> Run | str:
        """The run, or why it cannot be read; its files are read again if one of them has changed."""
        signature = tuple(_stat(self._place.inside(path) / name) for name in SEEN)
        if path not in self._read or self._read[path][0] != signature:
            found: Run | str
            try:
                found = read_run(self._place, path)
            except InputError as error:
                found = str(error)
            self._read[path] = (signature, found)
        return self._read[path][1]


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _roughly(seconds: float) -> str:
    """Return a time in words.

    >>> [_roughly(seconds) for seconds in (20, 100, 4_000, 20_000)]
    ['less than a minute', 'about 2 min', 'about 1 h', 'about 6 h']
    """
    if seconds < 60:
        return "less than a minute"
    return f"about {seconds / 60:.0f} min" if seconds < 3600 else f"about {seconds / 3600:.0f} h"
