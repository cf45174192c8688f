"""Worker processes on the nodes of a cluster, which all federations of this process share."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nestegg.errors import InputError, reason
from nestegg.training.blocks import Engine, Task, Witness, timed
from nestegg.training.cluster import Cluster, Node
from nestegg.training.memory import keep_memory
from nestegg.training.sending import Parcel, as_tensor, unpack


class Worker:
    """A process on a node, as an actor: it makes an engine for each federation, once, and trains blocks."""

    def __init__(self, environment: dict[str, str]) -> None:
        os.environ.update(environment)
        torch.set_num_threads(1)
        keep_memory()
        self._made: dict[int, tuple[Engine, Witness | None]] = {}
        self._from = (0, 0)
        self._model = torch.zeros(0)

    def prepare(self, key: int, parcel: Parcel) -> str | None:
        """Make the engine of a federation; return why that cannot be done here, or None."""
        try:
            outfit = unpack(parcel)
            outfit.performance.check()
            outfit.clients.move(outfit.performance.device)
            self._made[key] = outfit.engine()[0], outfit.witness()
        except InputError as error:
            return str(error).rstrip(".")
        except (Exception, SystemExit) as error:  # code of others may do anything
            return reason(error)
        return None

    def ping(self) -> None:
        """Answer, as those do who are alive."""

    def forget(self, key: int) -> None:
        """Let go of a federation's engine and data."""
        self._made.pop(key, None)

    def train(
        self, key: int, serial: int, model: NDArray[Any], tasks: Sequence[Task]
    ) -> tuple[NDArray[Any], tuple[float, int]]:
        """Train blocks, one after the other, from a model of this serial number; return their sum, and its counts."""
        engine, witness = self._made[key]
        if (key, serial) != self._from:
            device = engine.clients.zeros[0].device
            self._from, self._model = (key, serial), as_tensor(model).to(device, copy=True)
        total, bits, broken = torch.zeros(0), 0.0, 0
        for task in tasks:
            part, *_ = timed(engine, witness, self._model, task)
            total = total + part.total if len(total) else part.total
            bits, broken = bits + part.bits, broken + part.broken
        return total.cpu().numpy(), (bits, broken)

    def add(self, *totals: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of sums that lie on this node."""
        total: NDArray[Any] = np.sum(totals, axis=0)
        return total


@dataclass(eq=False)
class Seat:
    """A worker on a node.

    Attributes:
        node: where it is.
        actor: by which it is called.
        prepared: for which federations: what it will answer once it is ready for one, and None from then on.
    """

    node: Node
    actor: Any
    prepared: dict[int, Any] = field(default_factory=dict)


class Seats:
    """All workers that this process has on a cluster, each on one processor, or with one GPU.

    Args:
        cluster: that has the nodes.
        gpus: that each of them asks for, besides a processor.
    """

    def __init__(self, cluster: Cluster, gpus: int) -> None:
        import ray

        self.cluster, self._gpus = cluster, gpus
        self._actor = ray.remote(Worker)
        self._taken: list[Seat] = []

    def on(self, nodes: Collection[Node], wanted: int | None) -> list[Seat]:
        """Return workers on these nodes: as many as wanted, or as there is room; those that are missing are started."""
        here = [seat for seat in self._taken if seat.node in nodes]
        free = {node: self.room(node) - sum(seat.node == node for seat in here) for node in nodes}
        missing = sum(free.values()) if wanted is None else wanted - len(here)
        for _ in range(missing):
            node = max(free, key=lambda one: free[one], default=None)
            if node is None or free[node] < 1:
                break
            free[node] -= 1
            here.append(self._start(node))
        return here[:wanted]

    def lose(self, seat: Seat) -> None:
        """Do without a worker that has died, or cannot be used."""
        import ray

        with suppress(ValueError):  # lost already, with its node
            self._taken.remove(seat)
        if self.cluster.is_connected():  # otherwise Ray would start a new one to ask
            with suppress(Exception):  # it may be gone with all of its cluster
                ray.kill(seat.actor)

    def doubt(self, node: Node, key: int) -> None:
        """Give the workers of a node nothing until they have answered: it may be gone, and Ray notices later."""
        for seat in self._taken:
            if seat.node == node and seat.prepared.get(key, self) is None:
                seat.prepared[key] = seat.actor.ping.remote()

    def forget(self, key: int) -> None:
        """Have all workers let go of a federation."""
        for seat in self._taken if self.cluster.is_connected() else ():
            if key in seat.prepared:
                del seat.prepared[key]
                with suppress(Exception):  # it may be gone
                    seat.actor.forget.remote(key)

    def clear(self) -> None:
        """End all workers; those that are needed again are started again."""
        for seat in list(self._taken):
            self.lose(seat)

    def room(self, node: Node) -> int:
        """Return how many workers fit on a node."""
        return node.gpus // self._gpus if self._gpus else node.processors

    def _start(self, node: Node) -> Seat:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        held = self.cluster.held
        actor = self._actor.options(
            num_cpus=1,
            num_gpus=self._gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            runtime_env={"env_vars": held} if held else None,
        ).remote(self.cluster.environment)
        self._taken.append(Seat(node, actor))
        return self._taken[-1]


_seats: dict[tuple[str, int], Seats] = {}


def clear_seats() -> None:
    """End all workers of this process, on whose processors other work is to be done."""
    for seats in _seats.values():
        seats.clear()


def seats_on(cluster: Cluster, gpus: int) -> Seats:
    """Return the workers that this process has on a cluster."""
    key = (cluster.address, gpus)
    if key not in _seats or _seats[key].cluster is not cluster:
        _seats[key] = Seats(cluster, gpus)
    return _seats[key]
