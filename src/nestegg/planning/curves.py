"""Curves of the learning rate over the rounds. They depend on no data, so that a plan may know them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nestegg.checks import one_of, positive
from nestegg.errors import InputError

CLIP_UNITS = ("gradient", "update")


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


class Local(Protocol):
    """What clients do in a round, as `nestegg.LocalTraining` is, as far as a plan needs to know."""

    def rates(self, rounds: int, /) -> Sequence[float]:
        """Return λ_t of all rounds."""


@dataclass(frozen=True)
class Pace:
    """How large steps are in every round, and what clip norms are norms of.

    Attributes:
        learning_rate: λ_t of every round; a plan needs only their ratios.
        clip_unit: gradient if clip norms are norms of accumulated gradients, update if of updates.

    >>> Pace((0.2, 0.1)).clip_scale, Pace((0.2, 0.1), clip_unit="update").clip_scale
    ((0.2, 0.1), (1.0, 1.0))
    """

    learning_rate: tuple[float, ...]
    clip_unit: str = "gradient"

    def __post_init__(self) -> None:
        rates = tuple(positive(f"learning_rate[{t}]", rate) for t, rate in enumerate(self.learning_rate, 1))
        object.__setattr__(self, "learning_rate", rates)
        one_of("clip_unit", self.clip_unit, CLIP_UNITS)

    def after(self, rounds: int) -> Pace:
        """Return what is left after some rounds."""
        return Pace(self.learning_rate[rounds:], self.clip_unit)

    @property
    def clip_scale(self) -> tuple[float, ...]:
        """By what clip norms and noise are scaled in the unit of updates, in every round."""
        return self.learning_rate if self.clip_unit == "gradient" else (1.0,) * len(self.learning_rate)


def pace_of(local: Pace | Local | Sequence[float] | None, rounds: int) -> Pace:
    """Return the pace of local training; by default, that of our default learning-rate curve.

    Raises:
        InputError: it is of another number of rounds.
    """
    if local is None:
        return Pace(tuple(cosine(t, rounds) for t in range(1, rounds + 1)))
    if not isinstance(local, Pace):
        local = Pace(tuple(local if isinstance(local, Sequence) else local.rates(rounds)))
    if len(local.learning_rate) != rounds:
        raise InputError(
            f"local has {len(local.learning_rate)} learning rates; there must be one for each of the {rounds} rounds."
        )
    return local
