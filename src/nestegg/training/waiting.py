"""Loading that waits: how many workers keep the cores busy while some of them wait for clients' data.

`load` may draw from the global generators of random numbers, which training uses too: in a thread beside training it
would change results. So data is loaded where its client trains, and what is loaded ahead of time is what other workers
load meanwhile.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import NamedTuple

_TRIAL = 0.5  # seconds of blocks that are watched before it is decided
_NOTICEABLE = 1 / 3  # share of the time; below it, new processes gain less than they cost


class Moment(NamedTuple):
    """A moment of this thread: the time, how long it has worked, and how often it gave up its core to wait."""

    time: float
    worked: float
    waits: int

    @classmethod
    def now(cls) -> Moment:
        """Return this moment; where the system does not count waits, there are none."""
        thread = getattr(resource, "RUSAGE_THREAD", None)
        waits = 0 if thread is None else resource.getrusage(thread).ru_nvcsw
        return cls(perf_counter(), thread_time(), waits)

    def waited(self) -> float:
        """Return the seconds since then in which it waited; on a busy machine, to lose the core is not to wait."""
        now = Moment.now()
        return now.time - self.time - (now.worked - self.worked) if now.waits > self.waits else 0.0


@dataclass
class Waiting:
    """Watches how long blocks wait for clients' data, and says once how many workers there should be.

    Attributes:
        cores: workers that keep the machine busy if none of them waits.
        most: workers there may be.

    >>> waiting = Waiting(cores=2, most=8)
    >>> waiting.add(waited=0.6, seconds=0.8)
    >>> waiting.workers(now=2)
    8
    """

    cores: int
    most: int
    _waited: float = 0.0
    _seconds: float = 0.0
    _is_decided: bool = False

    def add(self, waited: float, seconds: float) -> None:
        """Note a block: how long it waited for data, and how long it took."""
        self._waited += waited
        self._seconds += seconds

    def workers(self, now: int) -> int:
        """Return how many workers there should be: as many as now, unless it is decided just now that more pay."""
        if self._is_decided or self._seconds < _TRIAL:
            return now
        self._is_decided = True  # once: new processes begin with empty caches
        share = min(self._waited / self._seconds, 1.0)
        if share < _NOTICEABLE:
            return now
        # A core is busy if 1/(1 - share) workers take turns on it.
        return max(now, min(self.most, round(self.cores / max(1.0 - share, 1e-3))))
