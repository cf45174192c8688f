"""Blocks of clients: what trains one, how its updates are clipped and summed, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.mechanism import BlockSum, block_sum, clipped_sum
from nestegg.mechanism.side import side_points
from nestegg.training import kernel
from nestegg.training.clients import Clients

# Side statistics of some clients, (clients, statistics), from whether each one's update was below its norm.
Tell = Callable[[NDArray[np.bool_]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Clipping:
    """How the updates of some clients are clipped in a round.

    Attributes:
        norms: c_n^t of each, in the unit of updates.
        layers: clipped each for itself; None clips the whole.
        step: of the round's lattice; 0 where there is no noise.
        side: how far each of them may move each side statistic's coordinate; empty where there are none.
    """

    norms: NDArray[np.float64]
    layers: Sequence[slice] | None
    step: float
    side: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

    def of(self, clients: Sequence[int]) -> Clipping:
        """The same for some of the clients."""
        side = self.side[list(clients)] if self.side.size else self.side
        return replace(self, norms=self.norms[list(clients)], side=side)

    def sum(self, updates: Tensor, tell: Tell | None = None) -> BlockSum:
        """Clip the updates of these clients, one a row, and sum them; side statistics are further coordinates."""
        total, lengths = self._clipped(updates)
        if tell is not None:
            values = tell(lengths <= self.norms)
            values[~np.isfinite(lengths) | (lengths == 0.0)] = (
                0.0  # nor say those anything who are broken or have no data
            )
            further = side_points(values, self.side, self.step).sum(axis=0)
            total = torch.cat([total, torch.from_numpy(further).to(total.device)])
        return block_sum(total, lengths, self.norms)

    def _clipped(self, updates: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
        """The sum of clipped updates, by the compiled kernel or as `clipped` says, and how long they were."""
        library = kernel.load() if updates.device.type == "cpu" and updates.dtype == torch.float32 else None
        if library is None:
            return clipped_sum(updates, self.norms, self.layers, self.step)
        total = np.zeros(updates.shape[1])
        edges = [0, *(layer.stop for layer in self.layers or [slice(len(total))])]
        lengths = kernel.add_clipped(library, updates, self.norms, edges, self.step, total)
        return torch.from_numpy(total), lengths


# A block, one that comes soon, the round, its learning rate, and how updates are clipped.
Task = tuple[list[int], list[int], int, float, Clipping]


class Witness(Protocol):
    """Computes side statistics of a block of clients."""

    def values(
        self, model: Tensor, block: Sequence[int], round_: int, is_below: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return (clients, statistics), from −1 to 1, each client's from its own samples and update alone."""


class Engine(Protocol):
    """Trains clients block by block, in any order, with the same result."""

    name: str
    instruction_set: str | None
    clients: Clients

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """A cohort in blocks, in the order in which they are summed."""

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The updates Δθ of a block: (clients, size). They are the caller's until the next block."""


class Crew(Protocol):
    """Those who train a cohort, wherever they are, with the same result.

    Attributes:
        engine: of this process, which cuts cohorts into blocks.
        count: how many train.
    """

    engine: Engine
    count: int

    def sums(
        self, model: Tensor, cohort: Sequence[int], round_: int, rate: float, clipping: Clipping
    ) -> Iterator[BlockSum]:
        """The cohort's clipped updates, summed some clients at a time; each is to be used before the next."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Small operations on several threads mostly wait for each other; on a busy machine they wait very long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def timed(engine: Engine, witness: Witness | None, model: Tensor, task: Task) -> tuple[BlockSum, float, float]:
    """Train and sum a block; also return how many seconds it waited for data, and how many it took in all."""
    block, following, round_, rate, clipping = task
    waited, began = engine.clients.waited, perf_counter()
    engine.clients.announce(following)
    tell = None if witness is None else partial(witness.values, model, block, round_)
    result = clipping.sum(engine.train_block(model, block, round_, rate), tell)
    return result, engine.clients.waited - waited, perf_counter() - began
