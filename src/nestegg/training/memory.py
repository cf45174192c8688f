"""Memory of processes that train: shared with those that were forked, and kept for the next step."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

import torch
from torch import Tensor

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def shared_memory(numbers: int, dtype: torch.dtype) -> Tensor:
    """Return memory that forked processes see too, and not of /dev/shm, of which containers have little."""
    return torch.frombuffer(mmap.mmap(-1, dtype.itemsize * numbers), dtype=dtype)


def keep_memory() -> None:
    """Reuse memory instead of giving it back: every step wants as much again, and fresh pages are slow."""
    with suppress(OSError, AttributeError):  # other C libraries have other ways
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        allocator.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
