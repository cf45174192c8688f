"""What was loaded last, kept within so many bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor


class BoundedCache:
    """Keeps the pairs of tensors or arrays that were asked for last.

    Threads may share it, but processes are forked before it is made: a lock that is held stays locked in a copy.

    Other data, whose size cannot be told, is not kept, and neither is a pair that is larger than the cache.

    Args:
        load: loads a client's data; what it raises is raised, and not kept.
        limit: bytes that are kept at most.

    Example:
        >>> def load(name):
        ...     print("loading", name)
        ...     return np.zeros((2, 3)), np.zeros(2)
        >>> cache = BoundedCache(load, limit=200)
        >>> data = [cache(name) for name in ("ada", "ada", "bob", "ada")]
        loading ada
        loading bob
    """

    def __init__(self, load: Callable[[str], Any], limit: int) -> None:
        self._load, self._limit = load, limit
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, name: str) -> Any:
        """Return a client's data, from here if it was loaded a short time ago."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name][0]
        data = self._load(name)  # others need not wait for it
        size = _bytes(data)
        if size is not None and size <= self._limit:
            with self._lock:
                self._forget(name)
                self._kept[name] = data, size
                self._bytes += size
                while self._bytes > self._limit:
                    self._forget(next(iter(self._kept)))
        return data

    def _forget(self, name: str) -> None:
        self._bytes -= self._kept.pop(name, (None, 0))[1]


def _bytes(data: Any) -> int | None:
    if isinstance(data, tuple) and all(isinstance(part, Tensor | np.ndarray) for part in data):
        return sum(int(part.nbytes) for part in data)
    return None
