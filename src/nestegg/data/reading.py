"""Many runs of bytes of a file at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = getattr(os, "RWF_NOWAIT", 0)  # read what is in memory, and do not wait for a disk


def read_runs(file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64], target: NDArray[np.uint8]) -> bool:
    """Read runs of bytes, one after the other, into an array that they fill.

    What the system holds in memory is copied at once. Of all other runs disks are told first, for they find them side
    by side. Reads are by offset, so that threads and forked processes may share the open file.

    Returns:
        Whether everything was in memory, as far as the system tells.

    Raises:
        OSError: the file cannot be read, or ends before a run does.
    """
    ends = np.cumsum(lengths)
    runs = list(zip(offsets.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True))
    missing = _missing(file, runs, target.data) if _AT_ONCE else runs
    for offset, begin, end in missing:
        _announce(file, offset, end - begin)
    for offset, begin, end in missing:
        at = begin
        while at < end:
            some = os.preadv(file, [target.data[at:end]], offset + at - begin)
            if not some:
                raise OSError("a file of an index was cut short")
            at += some
    return not missing


def announce_runs(file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    """Tell disks of runs of bytes that will be read soon, where the system can; nothing is read here."""
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        _announce(file, offset, length)


def _announce(file: int, offset: int, length: int) -> None:
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # it is advice
            os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)


def _missing(file: int, runs: Sequence[tuple[int, int, int]], target: memoryview) -> Sequence[tuple[int, int, int]]:
    """Read the runs that are in memory, and return the others."""
    missing: list[tuple[int, int, int]] = []
    for number, (offset, begin, end) in enumerate(runs):
        try:
            if os.preadv(file, [target[begin:end]], offset, _AT_ONCE) == end - begin:
                continue
        except BlockingIOError:
            pass
        except OSError:  # not every file system can tell
            return [*missing, *runs[number:]]
        missing.append((offset, begin, end))
    return missing
