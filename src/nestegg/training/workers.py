"""Workers: an engine's blocks one after the other, or on several cores, with the same result.

A client's update is computed by one thread from its own data and the model alone, and sums of lattice points are exact:
no bit of the result depends on who shares a block, on the number of workers, or on the order in which blocks come back.
Clients' data reaches worker processes by fork and the model by shared memory; a block comes back as one vector, already
clipped and summed.
"""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import NoReturn

import torch
from torch import Tensor

from nestegg.errors import InputError
from nestegg.mechanism import BlockSum
from nestegg.training.blocks import Clipping, Engine, Task, Witness, one_thread, timed
from nestegg.training.memory import keep_memory, shared_memory
from nestegg.training.waiting import Waiting

_SLOTS = 2  # blocks a worker may be ahead of the sum
_ALIVE = 1.0  # seconds between looks whether the parent still lives
Answer = tuple[float, int, float, float]  # bits and broken updates of a block; seconds waited for data, and in all


class Workers:
    """Trains a cohort: in this process if there is one worker, in forked ones otherwise.

    Where loading waits, there are more of them after a while: some wait while others train.
    """

    def __init__(
        self,
        engine: Engine,
        count: int,
        size: int,
        waiting: Waiting,
        *,
        witness: Witness | None = None,
        further: int = 0,
    ) -> None:
        self.engine, self.count, self._size, self._waiting = engine, count, size, waiting
        self._witness, self._further = witness, further
        self._connections: list[Connection] | None = None

    def sums(
        self,
        model: Tensor,
        cohort: Sequence[int],
        round_: int,
        rate: float,
        clipping: Clipping,
    ) -> Iterator[BlockSum]:
        """The cohort's clipped updates, summed block by block; each is to be used before the next."""
        blocks = self.engine.blocks(cohort)
        following = [*blocks[self.count :], *([[]] * self.count)]
        tasks = [(a, b, round_, rate, clipping.of(a)) for a, b in zip(blocks, following, strict=False)]
        if self.count > 1:
            yield from self._shared(model, tasks)
        else:
            for task in tasks:
                with one_thread():
                    result, *times = timed(self.engine, self._witness, model, task)
                self._waiting.add(*times)
                yield result
        wanted = self._waiting.workers(self.count)
        if wanted > self.count:
            self._give_up()
            self._connections, self.count = None, wanted

    def _shared(self, model: Tensor, tasks: Sequence[Task]) -> Iterator[BlockSum]:
        """The results of tasks, in their order, at most two of each worker waiting to be taken."""
        connections = self._start()
        self._model.copy_(model)
        free, idle = list(range(len(self._slots))), list(connections)
        at_work: dict[Connection, tuple[int, int]] = {}
        finished: dict[int, tuple[int, float, int]] = {}
        given = taken = 0
        try:
            while taken < len(tasks):
                while idle and free and given < len(tasks):
                    worker, slot = idle.pop(), free.pop()
                    with suppress(OSError):  # one that is gone is noticed when its answer does not come
                        worker.send((slot, *tasks[given]))
                    at_work[worker] = (given, slot)
                    given += 1
                if taken in finished:
                    slot, bits, broken = finished.pop(taken)
                    yield BlockSum(self._slots[slot], bits, broken)
                    free.append(slot)
                    taken += 1
                    continue
                for worker, (bits, broken, *times) in self._done(at_work):
                    number, slot = at_work.pop(worker)
                    self._waiting.add(*times)
                    finished[number] = (slot, bits, broken)
                    idle.append(worker)
        finally:
            try:
                while at_work:  # whoever stops listening must not find old answers in the next round
                    for worker, _ in self._done(at_work):
                        del at_work[worker]
            except BaseException:
                self._give_up()
                raise

    def _start(self) -> list[Connection]:
        if self._connections is None:
            self._connections = []
            self._model = shared_memory(self._size, torch.float32)
            width = self._size + self._further
            self._slots = shared_memory(_SLOTS * self.count * width, torch.float64).view(-1, width)
            context = get_context("fork")
            for _ in range(self.count):
                # One pipe at a time: a worker that held another's end would hide that one's death.
                ours, theirs = context.Pipe()
                arguments = (self.engine, self._witness, theirs, self._model, self._slots, os.getpid())
                context.Process(target=_serve, args=arguments, daemon=True).start()
                theirs.close()
                self._connections.append(ours)
            weakref.finalize(self, _dismiss, self._connections)
        if not self._connections:
            raise InputError("a worker process failed earlier: the federation must be made anew.")
        return self._connections

    def _give_up(self) -> None:
        """Never ask again: what workers still answer must not be taken for the next round's."""
        if self._connections:
            _dismiss(self._connections)
            self._connections.clear()

    def _done(self, at_work: dict[Connection, tuple[int, int]]) -> list[tuple[Connection, Answer]]:
        """Workers that have finished their block, at least one, and what they counted."""
        answers = []
        for worker in wait(list(at_work)):
            assert isinstance(worker, Connection)
            try:
                answer = worker.recv()
            except (EOFError, OSError):
                answer = "it was killed, perhaps for lack of memory"
            if isinstance(answer, str):
                at_work.clear()
                self._give_up()
                raise InputError(f"a worker process failed: {answer}.")
            answers.append((worker, answer))
        return answers


def _serve(
    engine: Engine, witness: Witness | None, connection: Connection, model: Tensor, slots: Tensor, parent: int
) -> NoReturn:
    """In a worker: train blocks until told to stop, or until the parent is gone."""
    torch.set_num_threads(1)
    keep_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    try:
        while os.getppid() == parent:
            if not connection.poll(_ALIVE):
                continue
            task = connection.recv()
            if task is None:
                break
            slot, *work = task
            try:
                result, *times = timed(engine, witness, model, work)
                slots[slot] = result.total
                connection.send((result.bits, result.broken, *times))
            except Exception as error:
                connection.send(f"{type(error).__name__}: {error}")
    except (EOFError, OSError):
        pass
    os._exit(0)  # what was inherited, such as open databases, is the parent's to close


def _dismiss(connections: list[Connection]) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.send(None)
