"""Engines train a cohort behind one small interface and stream its updates, so that memory does not grow with it."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestegg.checks import one_of, whole
from nestegg.errors import InputError
from nestegg.mechanism import Layout
from nestegg.randomness import Purpose, Randomness
from nestegg.training.dense import DenseEngine, is_dense
from nestegg.training.local import LocalTraining, Loss, Samples, batches, default_loss
from nestegg.training.workers import Block, WorkerEngine

ENGINES = ("auto", "loop", "dense")
MAX_WORKERS = 256


class Engine(Protocol):
    """Trains clients from a global model and gives back their updates."""

    name: str

    def train(self, model: Tensor, cohort: Sequence[int], round_: int, rate: float) -> Iterator[Block]:
        """Updates Δθ of the cohort, in blocks of (clients, (clients, size) vectors)."""


class LoopEngine:
    """One client after the other, any model: the readable engine, and the one that others are compared with."""

    name = "loop"
    rows = 1

    def __init__(
        self, model: nn.Module, clients: Sequence[Samples], training: LocalTraining, randomness: Randomness, loss: Loss
    ) -> None:
        self.model = copy.deepcopy(model).train()
        self.clients, self.training, self.randomness, self.loss = clients, training, randomness, loss
        layout = Layout.of(self.model)
        device = next(self.model.parameters()).device
        self.weights, self.gradient, self.velocity = (torch.zeros(layout.size, device=device) for _ in range(3))
        # Parameters and gradients become views of two vectors, so that a step of SGD is two operations.
        self.buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        parameters = dict(self.model.named_parameters())
        views = zip(layout.names, layout.split(self.weights), layout.split(self.gradient), strict=True)
        for name, weight, gradient in views:
            parameters[name].data, parameters[name].grad = weight, gradient
        # Convolutions on a CPU are much faster with the channels of a pixel side by side.
        convolves = any(isinstance(module, nn.Conv2d) for module in self.model.modules())
        self.format = torch.channels_last if convolves else torch.contiguous_format

    def train(self, model: Tensor, cohort: Sequence[int], round_: int, rate: float) -> Iterator[Block]:
        """Updates of the cohort, one client a block."""
        for block in self.blocks(cohort):
            yield block, self.train_block(model, block, round_, rate)

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """One client a block."""
        return [[client] for client in cohort]

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The update of one client."""
        (client,) = block
        self.weights.copy_(model)
        self.velocity.zero_()
        for name, buffer in self.model.named_buffers():  # nothing of one client reaches the next
            buffer.copy_(self.buffers[name])
        stream = self.randomness.stream(Purpose.SHUFFLE, round_, client)
        plan = batches(len(self.clients[client][1]), self.training, stream)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(stream.integers(2**63)))  # for dropout and the like
            self._train_client(client, plan, rate)
        return (self.weights - model)[None]

    def _train_client(self, client: int, plan: list[NDArray[np.int64]], rate: float) -> None:
        x, y = self.clients[client]
        for batch in plan:
            index = torch.from_numpy(batch).to(x.device)
            inputs = x[index].contiguous(memory_format=self.format) if x.dim() == 4 else x[index]
            self.gradient.zero_()
            with _precision(self.training.precision, x.device.type):
                loss = self.loss(self.model(inputs), y[index])
            loss.backward()
            self.velocity.mul_(self.training.momentum).add_(self.gradient)
            self.weights.add_(self.velocity, alpha=-rate)


def make_engine(
    name: str,
    model: nn.Module,
    clients: Sequence[Samples],
    training: LocalTraining,
    randomness: Randomness,
    loss: Loss = default_loss,
    workers: int = 1,
) -> Engine:
    """The engine of that name; `auto` takes the batched one wherever the model is dense."""
    one_of("engine", name, ENGINES)
    device = str(clients[0][0].device)
    if whole("workers", workers, 1, MAX_WORKERS) > 1 and device != "cpu":
        raise InputError(f"workers = {workers} must be 1 where training.device = {device!r}: they are for CPUs.")
    if training.precision == "bf16" and not bf16_works(device):
        raise InputError(
            f"precision = 'bf16' does not work with this torch on this machine's {device}; ONEDNN_MAX_CPU_ISA="
            "AVX512_CORE_BF16 in the environment may help where matrix units are announced but not usable."
        )
    dense = is_dense(model) and loss is default_loss and training.precision == "fp32"
    inner: LoopEngine | DenseEngine
    if name == "dense" or (name == "auto" and dense):
        inner = DenseEngine(model, clients, training, randomness)
    else:
        inner = LoopEngine(model, clients, training, randomness, loss)
    return WorkerEngine(inner, workers, Layout.of(model).size) if workers > 1 else inner


@cache
def bf16_works(device: str) -> bool:
    """Whether this machine survives bfloat16, tried in a process of its own.

    Some processors announce matrix units that their host does not let them use, and torch then dies of an illegal
    instruction, which no exception handler sees.
    """
    work = "m = torch.nn.Linear(64, 512).to(d); m(torch.ones(50, 64, device=d)).float().sum().backward()"
    code = (
        f"import torch; d = {device!r}; c = torch.autocast(torch.device(d).type, torch.bfloat16); c.__enter__(); {work}"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def _precision(name: str, device: str) -> AbstractContextManager[object]:
    return torch.autocast(device, dtype=torch.bfloat16) if name == "bf16" else nullcontext()
