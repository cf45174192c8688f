"""Workers on a cluster: blocks go to processes of its nodes, and sums of lattice points come back.

The model goes to each node once a round. A worker is given several blocks at a time; their sum stays on its node, and
when all is trained, each node sends one. Sums of lattice points are exact, so that no bit of the result depends on who
trained what, on how many machines, or on the order in which answers come. Where there is no noise there is no lattice:
then each block comes back alone, and they are summed in their order.

A worker may die at any time, and its node with it: what is lost with them is given to others. Nodes that join are used
from the next answer on.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count
from logging import getLogger
from typing import Any

from torch import Tensor

from nestegg.errors import InputError
from nestegg.mechanism import BlockSum
from nestegg.training.blocks import Clipping, Engine, Task
from nestegg.training.cluster import Cluster, Node, say_refused
from nestegg.training.connecting import first_line
from nestegg.training.gathering import Gathering, NodeSum
from nestegg.training.seats import Seat, seats_on
from nestegg.training.sending import Outfit, as_tensor, pack
from nestegg.training.shares import Shares

_LOOK = 0.5  # seconds between looks at the cluster while nobody answers
_START = 15.0  # seconds to wait at first for workers that are not ready, if others are
_PATIENCE = 180.0  # seconds without any worker after which it is given up; on a busy machine one starts in 60
_SILENCE = 10.0  # seconds without the cluster's head after which a round is given up
_LIVES = 3  # workers that the same blocks may cost
_LOG = getLogger("nestegg.cluster")
_keys = count(1)


class ClusterWorkers:
    """Trains a cohort on a cluster: as many workers as asked for, or one for each processor of every node.

    Args:
        engine: of this process, which cuts cohorts into blocks.
        outfit: of which every worker makes the same engine.
        cluster: that has the nodes.

    Raises:
        InputError: no node can train, or there are fewer processors than workers.
    """

    def __init__(self, engine: Engine, outfit: Outfit, cluster: Cluster) -> None:
        import ray

        self.engine, self.count = engine, 0
        self._cluster, self._wanted = cluster, outfit.performance.workers
        self._kind = "processor" if outfit.performance.device == "cpu" else "GPU"
        self._all, self._key, self._serial = seats_on(cluster, int(self._kind == "GPU")), next(_keys), 0
        there = replace(outfit.performance, engine=engine.name, workers=1, cluster=None)
        self._parcel = ray.put(pack(replace(outfit, performance=there)))
        self._deaths = Counter[str]()  # of workers that were not ready yet, by their nodes
        self._refused: dict[str, str] = {}  # nodes that cannot train these clients or this model, and why
        room = sum(map(self._all.room, self._nodes()))
        if (self._wanted or 1) > room:
            raise InputError(f"{self._wanted or 1} workers ask for a {self._kind} each: {cluster.offer()}.")
        weakref.finalize(self, self._all.forget, self._key)
        self._assemble()

    def sums(
        self,
        model: Tensor,
        cohort: Sequence[int],
        round_: int,
        rate: float,
        clipping: Clipping,
    ) -> Iterator[BlockSum]:
        """The cohort's clipped updates, summed some blocks at a time."""
        import ray

        tasks: list[Task] = [(block, [], round_, rate, clipping.of(block)) for block in self.engine.blocks(cohort)]
        shares = Shares(tasks, is_exact=clipping.step > 0.0)
        sent, serial = ray.put(model.cpu().numpy()), self._serial + 1
        self._serial = serial
        given: dict[Any, NodeSum] = {}  # by the counts that a worker answers with
        gathering, fetched, heard = Gathering(), dict[Any, NodeSum](), time.monotonic()
        while shares.are_left:
            busy = {part.seat for part in given.values()}
            for seat in self._ready():
                if seat not in busy and (share := shares.take(self.count)) is not None:
                    train = seat.actor.train.options(num_returns=2)
                    total, counts = train.remote(self._key, serial, sent, share.tasks)
                    given[counts] = NodeSum(seat, total, [share])
            if not given or clipping.step == 0.0:
                fetched |= gathering.collect()
            answers = self._wait([*given, *fetched])
            heard = time.monotonic() if answers else heard
            self._check_alive(heard)
            for answer in answers:
                is_trained = answer in given
                part = (given if is_trained else fetched).pop(answer)
                found = self._answered(part.seat, answer)
                if found is None and shares.give_back(part.shares) >= _LIVES:
                    raise InputError(
                        f"the same part of a round was lost with {_LIVES} workers, the last on node "
                        f"{part.seat.node.name}; perhaps it takes more memory than they have."
                    )
                if found is not None and is_trained:
                    gathering.keep(replace(part, bits=found[0], broken=found[1]))
                elif found is not None:
                    shares.add(part.shares, BlockSum(as_tensor(found), part.bits, part.broken))
            yield from shares.finished()

    def _ready(self) -> list[Seat]:
        """Workers that can be given something; those that are new are told what there is to train."""
        seats = self._all.on(self._nodes(), self._wanted)
        for seat in seats:
            if self._key not in seat.prepared:
                seat.prepared[self._key] = seat.actor.prepare.remote(self._key, self._parcel)
        self.count = len(seats)
        return [seat for seat in seats if seat.prepared[self._key] is None]

    def _wait(self, asked: Collection[Any]) -> list[Any]:
        """What was asked for and is there now; workers that have become ready are let in."""
        import ray

        seats = self._all.on(self._nodes(), self._wanted)
        starting = {ref: seat for seat in seats if (ref := seat.prepared.get(self._key)) is not None}
        if not (asked or starting):
            time.sleep(_LOOK)
            return []
        ready, _ = ray.wait([*asked, *starting], timeout=_LOOK)
        for one in ready:
            if one in starting:
                self._let_in(starting[one])
        return [one for one in ready if one in asked]

    def _let_in(self, seat: Seat) -> None:
        """Take a worker that is ready, or refuse its node by name."""
        import ray

        try:
            why = ray.get(seat.prepared[self._key])
        except ray.exceptions.RayTaskError as error:
            why = first_line(error)
        except ray.exceptions.RayError:  # it died meanwhile, perhaps with its node
            self._lose(seat)
            self._deaths[seat.node.name] += 1
            if self._deaths[seat.node.name] < _LIVES or seat.node not in self._nodes():
                return
            why = f"{_LIVES} workers died there before they were ready"
        seat.prepared[self._key] = None
        if why is not None and seat.node.name not in self._refused:
            self._refused[seat.node.name] = why
            say_refused(seat.node, why)

    def _answered(self, seat: Seat, answer: Any) -> Any:
        """What a worker answered; None if it died before that."""
        import ray

        try:
            return ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            raise InputError(f"a worker on node {seat.node.name} failed: {first_line(error)}.") from None
        except ray.exceptions.RayError:
            self._lose(seat)
            return None

    def _lose(self, seat: Seat) -> None:
        _LOG.warning(f"A worker on node {seat.node.name} was lost; what it was to do is done by others.")
        self._all.lose(seat)
        self._all.doubt(seat.node, self._key)

    def _assemble(self) -> None:
        """Wait for the first workers, so that what keeps all of them from training is said before anybody pays."""
        began = time.monotonic()
        while True:
            ready = len(self._ready())
            if ready and (ready == self.count or time.monotonic() - began > _START):
                return
            self._wait([])
            self._check_alive(began)

    def _check_alive(self, heard: float) -> None:
        """Give up if there has been no worker for long, or no head of the cluster."""
        silence = time.monotonic() - heard
        if silence > _SILENCE and not self._cluster.is_reachable():
            raise InputError(f"the head of the cluster, {self._cluster.address}, does not answer any more.")
        if self._ready() or (self._nodes() and silence < _PATIENCE):
            return
        refused = "".join(f"; {name}: {why}" for name, why in self._refused.items())
        there = f"each asks for a {self._kind}, and {self._cluster.offer()}"
        raise InputError(f"no worker was ready after {silence:.0f} s; {there}{refused}.")

    def _nodes(self) -> list[Node]:
        return [node for node in self._cluster.nodes() if node.name not in self._refused]
