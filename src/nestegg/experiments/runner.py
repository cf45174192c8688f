"""Run the cells that are missing: one after the other or in several processes, each kept as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool

from nestegg.configuration.config import Config, changed
from nestegg.data import load_dataset
from nestegg.errors import StoppedError
from nestegg.experiments.cells import Cell, Store, measure
from nestegg.runs.processes import as_done

OnCell = Callable[[Config, Cell], None]


def run_cells(configs: Sequence[Config], store: Store, jobs: int, on_cell: OnCell, cluster: str | None = None) -> None:
    """Train what the store does not have yet, in processes here or on a cluster.

    Raises:
        StoppedError: it was interrupted, or a process died; what is done is kept.
    """
    missing = [config for config in configs if store.get(config) is None]
    for dataset, place in {(config.federation.dataset, config.federation.data) for config in missing}:
        load_dataset(dataset, place)  # what is not there is said before anything is trained
    if missing:
        store.prepare()
    try:
        jobs = min(jobs, len(missing))
        # Each of several processes has one core.
        gpus = int(any(config.training.device != "cpu" for config in missing))
        is_shared = jobs > 1 or cluster is not None
        given = [changed(config, "training", workers=1) for config in missing] if is_shared else missing
        for number, cell in as_done(measure, given, jobs, cluster, gpus):
            store.put(cell)
            on_cell(missing[number], cell)
    except KeyboardInterrupt:
        raise StoppedError("It was interrupted. Finished cells are kept; the same command goes on.") from None
    except BrokenProcessPool:
        raise StoppedError("One of its processes died. Finished cells are kept; the same command goes on.") from None
