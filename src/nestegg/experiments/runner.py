"""Run the cells that are missing: one after the other or in several processes, each kept as soon as it is done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from threading import Thread

import torch

from nestegg.config import Config, changed
from nestegg.data import load_dataset
from nestegg.errors import StoppedError
from nestegg.experiments.cells import Cell, Store, measure
from nestegg.training.workers import keep_memory

OnCell = Callable[[Config, Cell], None]


def run_cells(configs: Sequence[Config], store: Store, jobs: int, on_cell: OnCell) -> None:
    """Train what the store does not have yet.

    Raises:
        StoppedError: it was interrupted, or a process died; what is done is kept.
    """
    missing = [config for config in configs if store.get(config) is None]
    for dataset, place in {(config.federation.dataset, config.federation.data) for config in missing}:
        load_dataset(dataset, place)  # what is not there is said before anything is trained
    if missing:
        store.prepare()
    try:
        for config, cell in _measured(missing, jobs):
            store.put(cell)
            on_cell(config, cell)
    except KeyboardInterrupt:
        raise StoppedError("It was interrupted. Finished cells are kept; the same command goes on.") from None
    except BrokenProcessPool:
        raise StoppedError("One of its processes died. Finished cells are kept; the same command goes on.") from None


def _measured(configs: Sequence[Config], jobs: int) -> Iterator[tuple[Config, Cell]]:
    if jobs == 1 or len(configs) < 2:
        for config in configs:
            yield config, measure(config)
        return
    # Fresh processes: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(min(jobs, len(configs)), get_context("spawn"), _prepare)
    try:
        running: dict[Future[Cell], Config] = {
            pool.submit(measure, changed(config, "training", workers=1)): config for config in configs
        }
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


def _prepare() -> None:
    """A process of the pool: one core, memory that is used again, and no last words when it is interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    keep_memory()


def _end_with_parent() -> None:
    """Nobody would keep the cell of a process whose parent was killed."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
