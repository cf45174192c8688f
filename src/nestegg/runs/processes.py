"""Independent pieces of work in this process or in several, which end with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from logging import NullHandler, getLogger
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import TypeVar

import torch

from nestegg.training.memory import keep_memory

Item = TypeVar("Item")
Result = TypeVar("Result")


def as_done(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, cluster: str | None = None, gpus: int = 0
) -> Iterator[tuple[int, Result]]:
    """Yield the place of each item and what the work gave for it, as soon as it is done.

    Args:
        work: a function of a module, which another process can import.
        items: what it is called with, each for itself.
        jobs: processes at a time; 1 is this one.
        cluster: where the work is done instead, as much at a time as there are processors.
        gpus: that each piece of work asks for there.

    Raises:
        BrokenProcessPool: one of the processes died.
    """
    if cluster is not None:
        from nestegg.runs.cluster_tasks import as_done_there

        yield from as_done_there(work, items, cluster, gpus)
        return
    if jobs == 1 or len(items) < 2:
        for place, item in enumerate(items):
            yield place, work(item)
        return
    # Fresh processes: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(min(jobs, len(items)), get_context("spawn"), _prepare)
    try:
        with _interrupts_held():
            running: dict[Future[Result], int] = {pool.submit(work, item): place for place, item in enumerate(items)}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold interrupts back, here and in processes that are started meanwhile, until those are prepared for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare() -> None:
    """Give a process of the pool one core, memory that is used again, and no last words when it is interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    getLogger("nestegg").addHandler(NullHandler())  # where many run at once, nobody could tell who says what
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    keep_memory()


def _end_with_parent() -> None:
    """End when the parent does: nobody would take the result."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
