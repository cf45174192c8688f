"""`python -m bench.lattice`: what the lattice costs: rounds with it and without it, in turns, on one core.

Without it means the arithmetic of before: updates clipped, summed and noised in single precision.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from nestegg.bench.works import load_federation, recipe, write_work
from nestegg.mechanism import BlockSum, Lattice
from nestegg.training.blocks import Clipping

WORKS, TURNS = ("mlp", "cnn"), 9


def single_precision_sum(self: Clipping, updates: Tensor) -> BlockSum:
    """Clip and sum a block as one operation on all its rows, in single precision."""
    pieces = self.layers or [slice(None)]
    norms = torch.from_numpy(self.norms)
    lengths = torch.stack([torch.linalg.vector_norm(updates[:, p], dim=1, dtype=torch.float64) for p in pieces], dim=1)
    limit = (norms / np.sqrt(len(pieces)))[:, None]
    scale = torch.where(lengths > limit, limit / lengths, 1.0)
    for piece, factor in zip(pieces, scale.unbind(dim=1), strict=True):
        updates[:, piece] *= factor[:, None].float()
    return BlockSum(updates.sum(dim=0), 0.0, 0)


def single_precision_noise(self: Lattice, share: float, shares: int, size: int, stream: np.random.Generator) -> Any:
    """One draw in single precision, in steps."""
    return stream.standard_normal(size, dtype=np.float32) * np.float32(share * shares**0.5 / self.step)


@contextmanager
def without_lattice() -> Iterator[None]:
    """Clip, sum and add noise in single precision."""
    with (
        mock.patch.object(Clipping, "sum", single_precision_sum),
        mock.patch.object(Lattice, "noise", single_precision_noise),
    ):
        yield


def main(data: str | None) -> None:
    """Time rounds in turns and print the ratios."""
    for name in WORKS:
        with tempfile.TemporaryDirectory() as folder:
            write_work(recipe(name), Path(folder), 2, data)
            world = load_federation(Path(folder), workers=1)
            state, best = world.start(), [np.inf, np.inf]
            world.round(state)
            for _ in range(TURNS):
                for which in (0, 1):
                    started = time.perf_counter()
                    if which:
                        world.round(state)
                    else:
                        with without_lattice():
                            world.round(state)
                    best[which] = min(best[which], time.perf_counter() - started)
        print(f"{name}: {best[0]:.4f} s without, {best[1]:.4f} s with the lattice: {best[1] / best[0]:.3f} ×")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
