"""The engine for any model, client after client; and the choice between engines."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestegg.checks import one_of, whole
from nestegg.errors import InputError
from nestegg.mechanism import Layout
from nestegg.randomness import Purpose, Randomness
from nestegg.training import kernel
from nestegg.training.dense import DenseEngine, is_dense
from nestegg.training.local import LocalTraining, Loss, Samples, batches, channels_last, convolves, default_loss
from nestegg.training.workers import Engine

ENGINES = ("auto", "loop", "dense")
MAX_WORKERS = 256
# Seconds of a round from which on processes are worth their start; parameters times samples that the dense engine
# trains in a second; seconds that the other engine takes for a sample, at least.
_LONG, _RATE, _OVERHEAD = 0.02, 1e10, 1e-5
# Parameters up to which the kernel was faster than torch for batches of any usual size: what a client trains is then in
# the caches of a core.
_LARGEST = {"baseline": 100_000, "neon": 500_000, "avx2": 500_000, "avx512": 500_000}


class LoopEngine:
    """One client after the other, any model: the readable engine, and the one that others are compared with."""

    name = "loop"
    instruction_set: str | None = None  # torch chooses its own

    def __init__(
        self, model: nn.Module, clients: Sequence[Samples], training: LocalTraining, randomness: Randomness, loss: Loss
    ) -> None:
        self.clients, self.training, self.randomness = clients, training, randomness
        self.layout, device = Layout.of(model), clients[0][0].device
        self.weights, self.velocity = (torch.zeros(self.layout.size, device=device) for _ in range(2))
        self.pristine = pooled_first(copy.deepcopy(model).train()), loss
        self.convolves, self.keeps_nothing = convolves(model), _keeps_nothing(model, loss)
        self._renew()
        self.buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self._try_out()

    def _renew(self) -> None:
        """Take a model and a loss that no client has touched yet.

        Parameters and their gradients are views of two vectors. Gradients are added to what is left of the velocity
        where they arise, so that a step of SGD with momentum is two operations.
        """
        self.model, self.loss = copy.deepcopy(self.pristine)
        parameters = dict(self.model.named_parameters())
        views = zip(self.layout.names, self.layout.split(self.weights), self.layout.split(self.velocity), strict=True)
        for name, weight, velocity in views:
            parameters[name].data, parameters[name].grad = weight, velocity

    def _try_out(self) -> None:
        """Train on zeros, which are nobody's data: code that fails for everybody is refused before anybody pays."""
        x, y = (torch.zeros_like(part[:2]) for part in self.clients[0])
        try:
            with _deterministic(x.device.type):
                self._train_on(x, y, [np.arange(len(y))], 0.0)
        except Exception as error:
            raise InputError(f"model and loss cannot be trained on zeros: {type(error).__name__}: {error}.") from None
        self._renew()

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """One client a block, the largest first: nobody waits for the largest at the end."""
        return [[client] for client in sorted(cohort, key=lambda client: -len(self.clients[client][1]))]

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The update of one client; NaN, which counts as zero, if its training raises.

        To stop would tell that this client was sampled, and of what its data does to the code.
        """
        (client,) = block
        x, y = self.clients[client]
        try:
            self._forget()
            self.weights.copy_(model)
            self.velocity.zero_()
            plan = batches(len(y), self.training, self.randomness, round_, client)
            with (
                torch.random.fork_rng(devices=[]),
                _deterministic(self.weights.device.type),
            ):  # for dropout and the like
                torch.manual_seed(int(self.randomness.stream(Purpose.SHUFFLE, round_, client).integers(2**63)))
                self._train_on(x, y, plan, rate)
        except Exception:
            self._renew()
            self.weights.fill_(torch.nan)
        return self.weights.sub_(model)[None]

    def _forget(self) -> None:
        """Leave nothing of one client to the next: torch's own modules keep buffers, others may keep anything."""
        if not self.keeps_nothing:
            self._renew()
            return
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self.buffers[name])

    def _train_on(self, x: Tensor, y: Tensor, plan: list[NDArray[np.int64]], rate: float) -> None:
        for batch in plan:
            index = torch.from_numpy(batch).to(x.device)
            inputs = channels_last(x[index]) if self.convolves else x[index]
            with _precision(self.training.precision, x.device.type):
                loss = self.loss(self.model(inputs), y[index])
            self.velocity.mul_(self.training.momentum)
            loss.backward()
            self.weights.add_(self.velocity, alpha=-rate)


def make_engine(
    name: str,
    model: nn.Module,
    clients: Sequence[Samples],
    training: LocalTraining,
    randomness: Randomness,
    loss: Loss = default_loss,
) -> tuple[Engine, str]:
    """Return the engine of that name, and why it was taken; `auto` takes the dense one wherever it can do the work.

    Whichever it is, what a client contributes depends on that client and the model alone, to the bit. On devices other
    than CPUs, deterministic algorithms of torch are to see to that; nobody has tested it there, and the reason says so.
    """
    one_of("engine", name, ENGINES)
    device = str(clients[0][0].device)
    if training.precision == "bf16" and not bf16_works(device):
        raise InputError(
            f"precision = 'bf16' does not work with this torch on this machine's {device}; ONEDNN_MAX_CPU_ISA="
            "AVX512_CORE_BF16 in the environment may help where matrix units are announced but not usable."
        )
    compiled = kernel.load()
    obstacles = {
        "the model is more than linear layers with rectifiers, or with hyperbolic tangents, between them": not is_dense(
            model, clients[0][0].shape[1:]
        ),
        "the loss is your own": loss is not default_loss,
        "precision is 'bf16'": training.precision != "fp32",
        f"the device is {device!r} and not a CPU": device != "cpu",
        f"{kernel.VARIABLE} is 'none'": compiled is None and os.environ.get(kernel.VARIABLE) == "none",
        "its kernel was not compiled on installation, for lack of a C compiler": compiled is None,
    }
    obstacle = next((reason for reason, holds in obstacles.items() if holds), None)
    if name == "dense" and obstacle is not None:
        raise InputError(f"engine = 'dense' cannot be used: {obstacle}.")
    if name == "auto" and compiled is not None and Layout.of(model).size > _LARGEST[compiled.instruction_set]:
        obstacle = obstacle or "the network is so large that torch is faster"
    if compiled is not None and obstacle is None and name != "loop":
        reason = "linear layers only" if name == "auto" else "as asked for"
        dense = DenseEngine(model, clients, training, randomness, compiled)
        return dense, f"{reason}, by the compiled kernel for {compiled.instruction_set}"
    reason = obstacle if name == "auto" and obstacle else "as asked for"
    if device != "cpu":
        reason += "; untested on such devices"
    return LoopEngine(model, clients, training, randomness, loss), reason


def _keeps_nothing(model: nn.Module, loss: Loss) -> bool:
    """Whether all that a model and a loss remember from one call to the next are buffers."""
    known = ("torch.nn.modules.", "nestegg.networks")
    parts = list(model.modules())
    hooked = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in parts)
    return loss is default_loss and not hooked and all(type(part).__module__.startswith(known) for part in parts)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(workers: int | None, engine: Engine, samples: float, size: int, device: str) -> int:
    """How many processes train: as many as asked for; or one for each core, if rounds are long enough for it.

    Args:
        workers: as asked for.
        engine: that trains.
        samples: that all clients together take in a round.
        size: number of parameters.
        device: where they train.
    """
    if workers is not None:
        if whole("workers", workers, 1, MAX_WORKERS) > 1 and device != "cpu":
            raise InputError(f"workers = {workers} must be 1 where training.device = {device!r}: they are for CPUs.")
        return workers
    if device != "cpu" or sys.platform != "linux":  # elsewhere forks are not safe
        return 1
    a_sample = size / _RATE if engine.name == "dense" else _OVERHEAD
    return min(cores(), MAX_WORKERS) if samples * a_sample >= _LONG else 1


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


def pooled_first(model: nn.Module) -> nn.Module:
    """Pooling by the maximum before the rectifier instead of after it: the same numbers, of a quarter as many."""
    for part in model.modules():
        if type(part) is nn.Sequential:
            for i in range(len(part) - 1):
                if type(part[i]) is nn.ReLU and type(part[i + 1]) is nn.MaxPool2d and not part[i + 1].return_indices:
                    part[i], part[i + 1] = part[i + 1], part[i]
    return model


def _precision(name: str, device: str) -> AbstractContextManager[object]:
    return torch.autocast(device, dtype=torch.bfloat16) if name == "bf16" else nullcontext()


@contextmanager
def _deterministic(device: str) -> Iterator[None]:
    """Use torch's deterministic algorithms where others might add up in an order that differs from time to time.

    On a CPU an operation of given shape, in one thread, has one order.
    """
    if device == "cpu":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, torch refuses to promise anything on CUDA
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # it would choose by the clock
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = before[2]
