"""Names of very many clients, without an object for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from nestegg.errors import InputError

_CHUNK = 65536  # names that are read at a time when all are


class Names(Sequence[str]):
    """Sorted, unique names as one text in UTF-8, which may lie in a file, and where each of them ends.

    Args:
        text: all names, one after the other.
        ends: where each one ends, in bytes.
        are_numbers: whether they are whole numbers in decimal digits, sorted by value, or texts, sorted by code points.

    Example:
        >>> names = Names(np.frombuffer(b"adabob", np.uint8), np.array([3, 6]))
        >>> list(names), names[-1], names.position("bob")
        (['ada', 'bob'], 'bob', 1)
    """

    def __init__(self, text: NDArray[np.uint8], ends: NDArray[np.int64], are_numbers: bool = False) -> None:
        self.text, self.ends, self.are_numbers = text, ends, are_numbers
        self._key = int if are_numbers else str

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return bytes(self.text[self.ends[at - 1] if at else 0 : self.ends[at]]).decode()

    def __iter__(self) -> Iterator[str]:
        begin = 0
        for first in range(0, len(self), _CHUNK):
            ends = self.ends[first : first + _CHUNK].tolist()
            text, offset = bytes(self.text[begin : ends[-1]]), begin
            for end in ends:
                yield text[begin - offset : end - offset].decode()
                begin = end

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._search(name) is not None

    def position(self, name: str) -> int:
        """Return where a name stands, by a binary search."""
        found = self._search(name)
        if found is None:
            raise InputError(f"the data has no client {name!r}.")
        return found

    def _search(self, name: str) -> int | None:
        try:
            found = bisect_left(self, self._key(name), key=self._key)
        except ValueError:  # no whole number, as all the others are
            return None
        return found if found < len(self) and self[found] == name else None
