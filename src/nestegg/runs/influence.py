"""Influence of a configuration, measured on public data in several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter

import torch

from nestegg.configuration.config import Config, changed
from nestegg.errors import StoppedError
from nestegg.runs.configured import public_federation
from nestegg.runs.processes import as_done
from nestegg.training import Federation, State, cores
from nestegg.training.blocks import one_thread
from nestegg.training.influence import Probe, one_by_one, rise
from nestegg.training.kept import Place

_LONG = 20.0  # seconds from which on processes are worth their start


@dataclass(frozen=True)
class PublicTraining:
    """A configuration's training on public data, which every process makes for itself.

    Attributes:
        config: what will be trained.
        public: a dataset's name, or "module:function".
        data: folder of the dataset's files.
        workers: processes that share a round's work, if other than the configuration says.
    """

    config: Config = field(hash=False)
    public: str
    data: Path | None
    workers: int | None = None

    def federation(self) -> Federation:
        """Return the federation; a process makes it once."""
        return _federation(self)


@lru_cache(maxsize=1)
def _federation(training: PublicTraining) -> Federation:
    config = training.config
    if training.workers is not None:
        config = changed(config, "training", workers=training.workers)
    return public_federation(config, training.public, training.data)


@dataclass(frozen=True)
class Processes:
    """Measures in several processes, each on one core.

    Attributes:
        training: that is measured.
        jobs: processes; by default one for each core, where it takes long enough to start them.
        cluster: where to measure instead, as in `Performance`.
    """

    training: PublicTraining
    jobs: int | None = None
    cluster: str | None = None

    def __call__(self, probe: Probe, places: Sequence[Place]) -> Iterator[tuple[Place, float]]:
        """Yield what was measured, as it comes."""
        jobs, rest = self.jobs, places
        if jobs is None and self.cluster is None:
            started = perf_counter()
            yield from one_by_one(probe, places[:1])
            rest = places[1:]
            takes_long = (perf_counter() - started) * len(rest) > _LONG
            jobs = cores() if takes_long and probe.federation.performance.device == "cpu" else 1
        if jobs is not None and min(jobs, len(rest)) < 2 and self.cluster is None:
            yield from one_by_one(probe, rest)
            return
        training = replace(self.training, workers=1)
        gpus = int(training.config.training.device != "cpu")
        try:
            for i, value in as_done(
                _rise, [(training, *probe.at(place)) for place in rest], jobs or 1, self.cluster, gpus
            ):
                yield rest[i], value
        except BrokenProcessPool:
            raise StoppedError("It was interrupted, or one of its processes died. The same command goes on.") from None


def _rise(item: tuple[PublicTraining, State, torch.Tensor, float]) -> float:
    training, state, noise, base = item
    with one_thread():
        return rise(training.federation(), state, noise, base)
