"""Global generators of random numbers: what one client draws from them must not reach the next."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let what is drawn from Python's, NumPy's and torch's own generators follow from a seed; then all is as before."""
    before, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002, code of others draws from it
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpys)  # noqa: NPY002
