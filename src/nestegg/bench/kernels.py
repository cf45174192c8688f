"""The kernel in every instruction set of this processor, beside the loop that trains where there is no kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from nestegg.bench.machine import machine
from nestegg.bench.works import random_clients
from nestegg.files import write_atomically
from nestegg.mechanism import Layout
from nestegg.mechanism.randomness import Randomness
from nestegg.report.markup import as_markdown
from nestegg.training import kernel
from nestegg.training.blocks import Engine, one_thread
from nestegg.training.clients import ClientsInMemory
from nestegg.training.dense import DenseEngine
from nestegg.training.engines import LoopEngine
from nestegg.training.local import LocalTraining

_TURNS = 3
_RATE = 0.05


@dataclass(frozen=True)
class Shape:
    """Clients of so many samples each that train a network of these units, inputs first, in batches."""

    units: tuple[int, ...]
    clients: int
    samples: int
    batch: int
    between: type[nn.Module] = nn.ReLU

    @property
    def name(self) -> str:
        """It for people."""
        return "-".join(map(str, self.units)) + (", tanh" if self.between is nn.Tanh else "")


SHAPES = (
    Shape((105, 100, 50, 1), 80, 300, 32),
    Shape((105, 100, 50, 1), 80, 300, 32, nn.Tanh),
    Shape((105, 32, 1), 80, 400, 32),
    Shape((64, 32, 10), 200, 20, 10),
    Shape((784, 32, 10), 20, 300, 32),
    Shape((784, 200, 200, 10), 4, 300, 32),
    Shape((441, 10), 40, 300, 32),
    Shape((108, 1), 80, 300, 32),
    Shape((20, 16, 2), 80, 50, 8),
)


@dataclass(frozen=True)
class Timing:
    """The least processor time of one epoch of all clients, by engine: `loop`, and instruction sets."""

    shape: Shape
    seconds: dict[str, float]

    def row(self) -> tuple[str, ...]:
        """It as a line of the table: seconds, and how many times as fast as the loop."""
        loop = self.seconds["loop"]
        sets = (f"{taken:.4f} s, {loop / taken:.1f}×" for name, taken in self.seconds.items() if name != "loop")
        shape = self.shape
        return (shape.name, f"{shape.clients} × {shape.samples}", str(shape.batch), f"{loop:.4f} s", *sets)


def columns() -> tuple[str, ...]:
    """Return the headings of the table."""
    return ("network", "clients × samples", "batch", "loop", *kernel.instruction_sets())


def compare_kernels(shapes: Sequence[Shape]) -> Iterator[Timing]:
    """Time every engine on every shape, in turns, so that all see the same machine."""
    for shape in shapes:
        layers = [layer for pair in pairwise(shape.units) for layer in (nn.Linear(*pair), shape.between())]
        classes = max(2, shape.units[-1])
        clients = random_clients(shape.clients, shape.samples, shape.samples, shape.units[:1], classes)
        model, training = nn.Sequential(*layers[:-1]), LocalTraining(1, shape.batch, _RATE)
        parts = (model, ClientsInMemory(clients), training, Randomness(0, reproducible=True))
        engines: dict[str, Engine] = {"loop": LoopEngine(*parts)}
        engines |= {one.instruction_set: DenseEngine(*parts, one) for one in kernel.kernels()}
        start = Layout.of(model).flatten(model)
        turns = [
            {name: _epoch(engine, start, shape.clients) for name, engine in engines.items()} for _ in range(_TURNS)
        ]
        yield Timing(shape, {name: min(turn[name] for turn in turns) for name in engines})


def save_kernels(folder: Path, timings: Sequence[Timing]) -> None:
    """Write the table into a folder."""
    table = as_markdown(columns(), [one.row() for one in timings])
    write_atomically(folder / "kernels.md", f"{table}\n{machine()}.\n")


def _epoch(engine: Engine, start: torch.Tensor, clients: int) -> float:
    with one_thread():
        began = time.process_time()
        for block in engine.blocks(range(clients)):
            engine.train_block(start, block, 1, _RATE)
        return time.process_time() - began
