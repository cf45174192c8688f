"""Curves of the learning rate over the rounds. They depend on no data, so that a plan may know them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping


def cosine(round_: int, rounds: int) -> float:
    """Return the factor of a round, from 1 in the first towards 0 after the last.

    >>> [round(cosine(t, 4), 3) for t in (1, 2, 3, 4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return (1.0 + math.cos(math.pi * (round_ - 1) / rounds)) / 2.0


def constant(round_: int, rounds: int) -> float:
    """Return 1 for every round.

    >>> constant(3, 4)
    1.0
    """
    return 1.0


CURVES: Mapping[str, Callable[[int, int], float]] = {"cosine": cosine, "constant": constant}
