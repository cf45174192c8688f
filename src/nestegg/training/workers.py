"""Worker processes: an engine's blocks on several cores, one thread each, with the same result as on one.

Blocks, and the order in which their updates are summed, do not depend on the number of workers, so no bit of the result
does. Clients' data reaches workers by fork and the model by shared memory; only updates come back, at most two blocks
for each worker at a time.
"""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import NoReturn, Protocol

import torch
from torch import Tensor

from nestegg.errors import InputError

Block = tuple[list[int], Tensor]
_SLOTS = 2  # blocks a worker may be ahead of the sum
_ALIVE = 1.0  # seconds between looks whether the parent still lives


class BlockEngine(Protocol):
    """An engine that trains block by block, in any order, with the same result."""

    name: str
    rows: int  # clients in a block, at most

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """A cohort in blocks, in the order in which they are summed."""

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The updates of a block: (clients, size)."""


class WorkerEngine:
    """Trains the blocks of another engine in forked processes."""

    def __init__(self, inner: BlockEngine, workers: int, size: int) -> None:
        self.name = f"{inner.name} in {workers} processes"
        self._inner = inner
        self._model = torch.empty(size).share_memory_()
        self._slots = torch.empty(_SLOTS * workers, inner.rows, size).share_memory_()
        context = get_context("fork")
        self._connections: list[Connection] = []
        for _ in range(workers):
            # One pipe at a time: a worker that held another's end would hide that one's death.
            ours, theirs = context.Pipe()
            arguments = (inner, theirs, self._model, self._slots, os.getpid())
            context.Process(target=_serve, args=arguments, daemon=True).start()
            theirs.close()
            self._connections.append(ours)
        weakref.finalize(self, _dismiss, self._connections)

    def train(self, model: Tensor, cohort: Sequence[int], round_: int, rate: float) -> Iterator[Block]:
        """Updates of the cohort, block by block, in the order of the other engine."""
        if not self._connections:
            raise InputError("a worker process failed earlier: the federation must be made anew.")
        blocks = self._inner.blocks(cohort)
        self._model.copy_(model)
        free, idle = list(range(len(self._slots))), list(self._connections)
        at_work: dict[Connection, tuple[int, int]] = {}
        finished: dict[int, int] = {}
        given = taken = 0
        try:
            while taken < len(blocks):
                while idle and free and given < len(blocks):
                    worker, slot = idle.pop(), free.pop()
                    with suppress(OSError):  # one that is gone is noticed when its answer does not come
                        worker.send((blocks[given], slot, round_, rate))
                    at_work[worker] = (given, slot)
                    given += 1
                if taken in finished:
                    slot = finished.pop(taken)
                    yield blocks[taken], self._slots[slot, : len(blocks[taken])]
                    free.append(slot)
                    taken += 1
                    continue
                for worker in self._done(at_work):
                    number, slot = at_work.pop(worker)
                    finished[number] = slot
                    idle.append(worker)
        finally:
            while at_work:  # whoever stops listening must not find old answers in the next round
                for worker in self._done(at_work):
                    del at_work[worker]

    def _done(self, at_work: dict[Connection, tuple[int, int]]) -> list[Connection]:
        """Workers that have finished their block; at least one."""
        ready = [connection for connection in wait(list(at_work)) if isinstance(connection, Connection)]
        for worker in ready:
            try:
                error = worker.recv()
            except (EOFError, OSError):
                error = "it was killed, perhaps for lack of memory"
            if error is not None:
                at_work.clear()
                _dismiss(self._connections)  # what others still answer must not be taken for the next round's
                self._connections.clear()
                raise InputError(f"a worker process failed: {error}.")
        return ready


def _serve(inner: BlockEngine, connection: Connection, model: Tensor, slots: Tensor, parent: int) -> NoReturn:
    """In a worker: train blocks until told to stop, or until the parent is gone."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    try:
        while os.getppid() == parent:
            if not connection.poll(_ALIVE):
                continue
            task = connection.recv()
            if task is None:
                break
            block, slot, round_, rate = task
            try:
                slots[slot, : len(block)] = inner.train_block(model, block, round_, rate)
                connection.send(None)
            except Exception as error:
                connection.send(f"{type(error).__name__}: {error}")
    except (EOFError, OSError):
        pass
    os._exit(0)  # what was inherited, such as open databases, is the parent's to close


def _dismiss(connections: list[Connection]) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.send(None)
