"""Global generators of random numbers: what one client draws from them must not reach the next."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """Let what is drawn from torch's own generator follow from a seed; then all is as before."""
    with torch.random.fork_rng(devices=[]):
        # Where there is no other device than the CPU, torch need not keep the seed, with the whole stack, for each.
        (torch.manual_seed if _has_devices() else torch.default_generator.manual_seed)(seed)
        yield


@cache
def _has_devices() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let what is drawn from Python's, NumPy's and torch's own generators follow from a seed; then all is as before."""
    before, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002, code of others draws from it
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        with torch_seeded(seed):
            yield
    finally:
        random.setstate(before)
        np.random.set_state(numpys)  # noqa: NPY002
