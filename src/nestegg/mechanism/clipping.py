"""Clipping: what leaves a client is no longer than its norm, and lies on the round's lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Clipping aims this much below the norm: more than rounding can add in double precision, for 10^9 coordinates too.
BELOW = 1.0 - 1e-6

CLIPPINGS = ("per-layer", "flat")


def clipped(
    update: Tensor, norm: float, layers: Sequence[slice] | None = None, step: float = 0.0
) -> tuple[Tensor, float]:
    """Clip one client's update to its norm (ClientUpdate, line 9) and truncate it to the lattice of a step.

    Truncation goes towards zero, so it lets no norm grow. Everything is computed in double precision, from this update
    alone: the result does not depend, in any bit, on other clients.

    Args:
        update: a vector.
        norm: c_n^t.
        layers: clip each of the m layers to c_n^t/√m, so that the whole stays within c_n^t; by default the whole.
        step: of the lattice; 0 where there is no noise, and so no lattice.

    Returns:
        Whole numbers of steps (numbers as they are where the step is 0), zero for an update that is not finite; and the
        norm that the update had.
    """
    if not norm >= 0.0:  # NaN is not: never an update that is not clipped
        raise ValueError("a clip norm is not a number of at least 0")
    pieces = [slice(None)] if layers is None else layers
    lengths = [float(torch.linalg.vector_norm(update[piece], dtype=torch.float64)) for piece in pieces]
    whole = math.sqrt(math.fsum(length * length for length in lengths))
    if not math.isfinite(whole):
        return torch.zeros_like(update, dtype=torch.float64), whole
    points, limit = update.double(), norm * BELOW / math.sqrt(len(pieces))
    for piece, length in zip(pieces, lengths, strict=True):
        scale = limit / length if length > limit else 1.0  # a zero update stays zero
        points[piece] *= scale / step if step else scale
    return points.trunc_() if step else points, whole


class BlockSum(NamedTuple):
    """What some clients contribute to a round.

    Attributes:
        total: the sum of their clipped updates, in steps of the lattice: whole numbers, so that the sum is exact.
        bits: the sum of b − ½ over them, b = 1 for an update that was below its norm.
        broken: how many updates were not finite.
    """

    total: Tensor
    bits: float
    broken: int


def block_sum(total: Tensor, lengths: NDArray[np.float64], norms: NDArray[np.float64]) -> BlockSum:
    """What clients with updates of these lengths contribute, whose clipped updates sum to `total`."""
    below = int((lengths <= norms).sum())  # NaN is not below
    return BlockSum(total, below - len(lengths) / 2.0, int((~np.isfinite(lengths)).sum()))


def clipped_sum(
    updates: Tensor, norms: NDArray[np.float64], layers: Sequence[slice] | None = None, step: float = 0.0
) -> tuple[Tensor, NDArray[np.float64]]:
    """Clip the updates of some clients, one a row, and sum them; also return how long each was. See `clipped`."""
    total, lengths = torch.zeros(updates.shape[1], dtype=torch.float64, device=updates.device), []
    for update, norm in zip(updates, norms.tolist(), strict=True):
        points, length = clipped(update, norm, layers, step)
        total += points
        lengths.append(length)
    return total, np.array(lengths)
