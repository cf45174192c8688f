"""Curves of relative noise over the rounds, for the method `shaped`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nestegg.accounting import Array
from nestegg.checks import one_of, positive
from nestegg.errors import InputError

MAX_RATIO = 1e4
SHAPES = ("geometric", "linear", "cosine")


def make_shape(shape: str | Sequence[float], end_ratio: float, rounds: int) -> Array:
    """Relative noise of every round: a named curve from 1 to `end_ratio`, or the numbers as given.

    >>> make_shape("linear", 0.5, 3).tolist()
    [1.0, 0.75, 0.5]
    """
    if not isinstance(shape, str):
        if len(shape) != rounds:
            raise InputError(f"shape has {len(shape)} numbers; it must have one for each of the {rounds} rounds.")
        numbers = np.array([positive(f"shape[{t}]", value) for t, value in enumerate(shape, 1)])
        if numbers.max() > MAX_RATIO * numbers.min():
            raise InputError(
                f"shape goes from {numbers.min():g} to {numbers.max():g}; a factor of {MAX_RATIO:g} is allowed."
            )
        return numbers
    one_of("shape", shape, SHAPES)
    if not 1.0 / MAX_RATIO <= positive("end_ratio", end_ratio) <= MAX_RATIO:
        raise InputError(f"end_ratio = {end_ratio!r} must lie between {1.0 / MAX_RATIO:g} and {MAX_RATIO:g}.")
    progress = np.linspace(0.0, 1.0, rounds)
    if shape == "geometric":
        return np.asarray(end_ratio**progress)
    if shape == "linear":
        return 1.0 + (end_ratio - 1.0) * progress
    return end_ratio + (1.0 - end_ratio) * (1.0 + np.cos(np.pi * progress)) / 2.0
