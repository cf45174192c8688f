"""What makes training faster or slower and costs no privacy: engine, processes, device, precision."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import current_process

import torch

from nestegg.checks import one_of, whole
from nestegg.errors import InputError

ENGINES = ("auto", "loop", "dense")
PRECISIONS = ("fp32", "bf16")
MAX_WORKERS = 256
# Seconds of a round from which on processes are worth their start; parameters times samples that the dense engine
# trains in a second; seconds that the other engine takes for a sample, at least; seconds to load a client's data.
_LONG, _RATE, _OVERHEAD, _LOADING = 0.02, 1e10, 1e-5, 2e-5
_TURNS = 4  # workers that may take turns on a core while others of them wait for data; each takes memory


@dataclass(frozen=True)
class Performance:
    """How training is computed. No privacy depends on it.

    Attributes:
        engine: dense trains networks of linear layers by a compiled kernel, loop trains anything by torch; auto takes
            the dense one wherever it can do the work.
        workers: processes in which clients train; by default one for each core where rounds are long enough, and more
            where loading clients' data waits. They change no result.
        device: where torch computes: cpu, cuda, mps.
        precision: fp32, or bf16 in the forward pass.
        cluster: a Ray cluster on whose nodes clients train: local starts one on this machine, auto takes the one that
            runs here already, host:port is that of its head. Workers are then one for each of its processors, or of its
            GPUs if the device is one. It changes no result.

    >>> Performance(workers=2).engine
    'auto'
    """

    engine: str = "auto"
    workers: int | None = None
    device: str = "cpu"
    precision: str = "fp32"
    cluster: str | None = None

    def __post_init__(self) -> None:
        one_of("engine", self.engine, ENGINES)
        one_of("precision", self.precision, PRECISIONS)
        if self.workers is None:
            return
        many = whole("workers", self.workers, 1, MAX_WORKERS) > 1
        if many and self.device != "cpu" and self.cluster is None:
            raise InputError(f"workers = {self.workers} must be 1 where device = {self.device!r}: they are for CPUs.")

    def here(self) -> Performance:
        """Return how this process computes: on its own processor, where clients train elsewhere."""
        if self.cluster is None:
            return self
        engine = "loop" if self.device != "cpu" and self.engine == "auto" else self.engine  # of those who train there
        return replace(self, engine=engine, device="cpu", cluster=None, workers=None)

    def check(self) -> None:
        """Refuse a device or a precision that does not work on this machine."""
        try:
            torch.ones(1, device=self.device).item()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise InputError(f"device = {self.device!r} cannot be used here: {reason}.") from None
        if self.precision == "bf16" and not bf16_works(self.device):
            raise InputError(
                f"precision = 'bf16' does not work with this torch on this machine's {self.device}; ONEDNN_MAX_CPU_ISA="
                "AVX512_CORE_BF16 in the environment may help where matrix units are announced but not usable."
            )

    def worker_count(self, engine: str, size: int, *, samples: float, loads: float) -> int:
        """Return how many processes train: as many as asked for; or one for each core, if rounds are long enough.

        Args:
            engine: name of the one that trains.
            size: number of parameters.
            samples: that all clients together take in a round.
            loads: clients whose data is loaded in a round.
        """
        if self.workers is not None:
            return self.workers
        if not self._may_fork():
            return 1
        a_sample = size / _RATE if engine == "dense" else _OVERHEAD
        return min(cores(), MAX_WORKERS) if samples * a_sample + loads * _LOADING >= _LONG else 1

    def most_workers(self) -> int:
        """Return how many processes there may be where loading waits: no more than asked for, or some for each core."""
        if self.workers is not None:
            return self.workers
        return min(_TURNS * cores(), MAX_WORKERS) if self._may_fork() else 1

    def _may_fork(self) -> bool:
        """Whether forks are safe here, and allowed: processes of a pool may have no children."""
        return self.device == "cpu" and sys.platform == "linux" and not current_process().daemon


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def bf16_works(device: str) -> bool:
    """Return whether this machine survives bfloat16, tried in a process of its own.

    Some processors announce matrix units that their host does not let them use, and torch then dies of an illegal
    instruction, which no exception handler sees.
    """
    work = "m = torch.nn.Linear(64, 512).to(d); m(torch.ones(50, 64, device=d)).float().sum().backward()"
    code = (
        f"import torch; d = {device!r}; c = torch.autocast(torch.device(d).type, torch.bfloat16); c.__enter__(); {work}"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
