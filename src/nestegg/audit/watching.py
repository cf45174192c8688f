"""A federation that is watched while it does its real work: who is drawn, and what the sum is before its noise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from nestegg.mechanism import BlockSum
from nestegg.training import Federation, State
from nestegg.training.blocks import Clipping


class Watched:
    """Rounds of a federation, seen from inside. Nothing of them is changed but, where asked for, who is drawn.

    Args:
        federation: whose code runs; it is this object's from now on.

    Attributes:
        federation: the same.
        drawn: who was drawn in the last round.
        clipping: by which it was clipped.
        total: the exact sum of what clients contributed to it, in steps of the lattice.
        bits: the sum of their bits.
        said: what the round released of side statistics.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self._draw, self._sums = federation.cohort, federation.workers.sums
        self._asked: Sequence[int] | None = None
        self.drawn: list[int] = []
        self.clipping = Clipping(np.zeros(0), None, 0.0)
        self.total, self.bits = torch.zeros(0), 0.0
        self.said: dict[str, float] = {}
        setattr(federation, "cohort", self._cohort)  # noqa: B010, mypy allows no method to be assigned
        setattr(federation.workers, "sums", self._watched_sums)  # noqa: B010

    def round(self, state: State, absent: Collection[int] = (), *, cohort: Sequence[int] | None = None) -> State:
        """Return the state after one round, of those who are drawn or of a cohort that is asked for."""
        self._asked = cohort
        size = self.federation.layout.size + len(self.federation.side.shares)
        self.total, self.bits = torch.zeros(size, dtype=torch.float64), 0.0
        after, report = self.federation.round(state, absent)
        self.said = report.side
        return after

    def contribution(self, state: State, cohort: Sequence[int]) -> Tensor:
        """Return what some clients together contribute to a round, in steps of its lattice."""
        self.round(state, cohort=cohort)
        return self.total

    def states(self) -> Iterator[tuple[State, State]]:
        """Yield the states before and after every round of the plan, once through it."""
        before = self.federation.start()
        while before.round < self.federation.plan.rounds:
            after = self.round(before)
            yield before, after
            before = after

    def _cohort(self, round_: int) -> list[int]:
        self.drawn = self._draw(round_) if self._asked is None else list(self._asked)
        return self.drawn

    def _watched_sums(
        self, model: Tensor, cohort: Sequence[int], round_: int, rate: float, clipping: Clipping
    ) -> Iterator[BlockSum]:
        self.clipping = clipping
        for part in self._sums(model, cohort, round_, rate, clipping):
            self.total += part.total
            self.bits += part.bits
            yield part
