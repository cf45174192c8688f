"""Shares of a round: which blocks a worker is given at a time, and in which order their sums are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nestegg.mechanism import BlockSum
from nestegg.training.blocks import Task

_AHEAD = 4  # blocks for each worker that may wait for one before them, where the order of sums counts


@dataclass(eq=False)
class Share:
    """Some blocks of a round.

    Attributes:
        place: in the order of sums.
        tasks: the blocks.
        lost: workers that they have cost.
    """

    place: int
    tasks: Sequence[Task]
    lost: int = 0


class Shares:
    """The blocks of a round, given out until every one of them is summed.

    Sums of lattice points are exact: then a share is many blocks, fewer towards the end, when nobody should wait for
    the last, and sums are used as they come. Otherwise a share is one block, and sums are used in the order of blocks.

    >>> shares = Shares([([client], [], 1, 0.1, None) for client in range(9)], is_exact=True)
    >>> [len(shares.take(workers=2).tasks) for _ in range(4)]
    [2, 1, 1, 1]
    """

    def __init__(self, tasks: Sequence[Task], *, is_exact: bool) -> None:
        self._tasks, self._is_exact = tasks, is_exact
        self._next, self._used, self._shares = 0, 0, 0
        self._again: list[Share] = []
        self._sums: dict[int, tuple[BlockSum, int]] = {}  # by the place of the first share: a sum, and of how many

    @property
    def are_left(self) -> bool:
        """Whether there is anything that is not summed yet, or whose sum was not used."""
        return self._next < len(self._tasks) or self._used < self._shares

    def take(self, workers: int) -> Share | None:
        """Return what one of so many workers should do next, if there is anything to do now."""
        if self._again:
            return self._again.pop()
        left = len(self._tasks) - self._next
        if not left or (not self._is_exact and self._shares - self._used >= _AHEAD * workers):
            return None
        count = max(left // (2 * workers), 1) if self._is_exact else 1
        share = Share(self._shares, self._tasks[self._next : self._next + count])
        self._next, self._shares = self._next + count, self._shares + 1
        return share

    def give_back(self, shares: Sequence[Share]) -> int:
        """Take shares back that were lost with a worker; return how many workers one of them has cost."""
        for share in shares:
            share.lost += 1
        self._again += shares
        return max(share.lost for share in shares)

    def add(self, shares: Sequence[Share], result: BlockSum) -> None:
        """Keep the sum of some shares until it is used."""
        self._sums[shares[0].place] = result, len(shares)

    def finished(self) -> Iterator[BlockSum]:
        """Yield sums that can be used now."""
        while self._sums:
            place = next(iter(self._sums)) if self._is_exact else self._used
            if place not in self._sums:
                return
            result, count = self._sums.pop(place)
            self._used += count
            yield result
