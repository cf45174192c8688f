"""The engine for any model, client after client; and the choice between engines."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestegg.errors import InputError
from nestegg.mechanism import Layout
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.training import kernel
from nestegg.training.blocks import Engine
from nestegg.training.clients import Clients
from nestegg.training.dense import DenseEngine, is_dense, is_hooked
from nestegg.training.evaluation import channels_last, convolves
from nestegg.training.layers import compiled_layers
from nestegg.training.local import LocalTraining, batches
from nestegg.training.losses import is_entropy, loss_for
from nestegg.training.performance import Performance
from nestegg.training.seeding import seeded, torch_seeded

# Parameters up to which the kernel was faster than torch for batches of any usual size: what a client trains is then in
# the caches of a core.
_LARGEST = {"baseline": 100_000, "neon": 500_000, "avx2": 500_000, "avx512": 500_000}


class LoopEngine:
    """One client after the other, any model: the readable engine, and the one that others are compared with."""

    name = "loop"
    instruction_set: str | None = None  # of the kernel, if it computes some layers; torch chooses its own

    def __init__(
        self,
        model: nn.Module,
        clients: Clients,
        training: LocalTraining,
        randomness: Randomness,
        precision: str = "fp32",
        compiled: kernel.Kernel | None = None,
    ) -> None:
        self.clients, self.training, self.randomness, self.precision = clients, training, randomness, precision
        self.layout, device = Layout.of(model), clients.zeros[0].device
        self.weights, self.velocity = (torch.zeros(self.layout.size, device=device) for _ in range(2))
        ours = pooled_first(copy.deepcopy(model).train())
        # Derivatives of derivatives, which a loss of one's own may take, torch alone has.
        if compiled is not None and is_entropy(training.loss) and compiled_layers(ours, compiled):
            self.instruction_set = compiled.instruction_set
        self.pristine = ours, training.loss, training.optimizer
        self.convolves, self.keeps_nothing = convolves(model), _keeps_nothing(model, training)
        self._renew()
        self.buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self._try_out()

    def _renew(self) -> None:
        """Take a model, a loss and an optimiser that no client has touched yet.

        Parameters and their gradients are views of two vectors. Gradients are added to what is left of the velocity
        where they arise, so that a step of SGD with momentum is two operations.
        """
        self.model, self.loss, self.optimizer = copy.deepcopy(self.pristine)
        parameters = dict(self.model.named_parameters())
        views = zip(self.layout.names, self.layout.split(self.weights), self.layout.split(self.velocity), strict=True)
        for name, weight, velocity in views:
            parameters[name].data, parameters[name].grad = weight, velocity

    def _try_out(self) -> None:
        """Train on zeros, which are nobody's data: code that fails for everybody is refused before anybody pays."""
        x, y = self.clients.zeros
        try:
            with deterministic(x.device.type):
                self._train_on(x, y, [np.arange(len(y))], 0.0)
        except Exception as error:
            raise InputError(f"model and loss cannot be trained on zeros: {type(error).__name__}: {error}.") from None
        self._renew()

    def blocks(self, cohort: Sequence[int]) -> list[list[int]]:
        """One client a block, the largest first: nobody waits for the largest at the end."""
        sizes = self.clients.sizes
        return [[client] for client in (cohort if sizes is None else sorted(cohort, key=lambda one: -sizes[one]))]

    def train_block(self, model: Tensor, block: list[int], round_: int, rate: float) -> Tensor:
        """The update of one client; NaN, which counts as zero, if its training raises.

        To stop would tell that this client was sampled, and of what its data does to the code.
        """
        (client,) = block
        try:
            x, y = self.clients.samples(client)
            self._forget()
            self.weights.copy_(model)
            self.velocity.zero_()
            (key,) = self.clients.keys(block).tolist()
            plan = batches(len(y), self.training, self.randomness, round_, key)
            seed = int(self.randomness.stream(Purpose.SHUFFLE, round_, client=key).integers(2**63))
            generators = torch_seeded(seed) if self.keeps_nothing else seeded(seed)  # for dropout and the like
            with generators, deterministic(self.weights.device.type):
                self._train_on(x, y, plan, rate)
        except (Exception, SystemExit):  # code of others may do anything
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
        step = self._sgd(rate) if self.optimizer is None else self._own(self.optimizer, rate)
        loss_of = loss_for(self.loss, y)
        for batch in plan:
            index = torch.from_numpy(batch).to(x.device)
            inputs = channels_last(x[index]) if self.convolves else x[index]
            with _precision(self.precision, x.device.type):
                loss = loss_of(self.model(inputs), y[index])
            step(loss)
        if self.optimizer is not None:  # it may have put other tensors in the place of our views
            self.weights.copy_(self.layout.flatten(self.model))

    def _sgd(self, rate: float) -> Callable[[Tensor], None]:
        """SGD with momentum, on vectors."""

        def step(loss: Tensor) -> None:
            self.velocity.mul_(self.training.momentum)
            loss.backward()
            self.weights.add_(self.velocity, alpha=-rate)

        return step

    def _own(self, make: Callable[..., torch.optim.Optimizer], rate: float) -> Callable[[Tensor], None]:
        """An optimiser of one's own, which starts fresh; parameters are views of the weights, which it changes."""
        parameters = dict(self.model.named_parameters())
        optimizer = make([parameters[name] for name in self.layout.names], lr=rate)

        def step(loss: Tensor) -> None:
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()

        return step


def make_engine(
    performance: Performance,
    model: nn.Module,
    clients: Clients,
    training: LocalTraining,
    randomness: Randomness,
    instruction_set: str | None = None,
) -> tuple[Engine, str]:
    """Return the engine that is asked for, and why it was taken; `auto` takes the dense one wherever it can.

    The kernel's instruction set is the one given, as `kernel.chosen` takes it.

    Whichever it is, what a client contributes depends on that client and the model alone, to the bit. On devices other
    than CPUs, deterministic algorithms of torch are to see to that; nobody has tested it there, and the reason says so.
    """
    name, device = performance.engine, performance.device
    compiled = kernel.load(instruction_set)
    obstacles = {
        "the model is more than linear layers with rectifiers, or with hyperbolic tangents, between them": not is_dense(
            model, clients.zeros[0].shape[1:]
        ),
        "the loss is your own": not is_entropy(training.loss),
        "the optimiser is your own": training.optimizer is not None,
        "inputs are whole numbers": not clients.zeros[0].is_floating_point(),
        "precision is 'bf16'": performance.precision != "fp32",
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
    layers = compiled if device == "cpu" and performance.precision == "fp32" else None
    return LoopEngine(model, clients, training, randomness, performance.precision, layers), reason


def _keeps_nothing(model: nn.Module, training: LocalTraining) -> bool:
    """Whether all that model, loss and optimiser remember from one client to the next are buffers."""
    known = ("torch.nn.modules.", "nestegg.")
    parts = list(model.modules())
    hooked = any(is_hooked(part) for part in parts)
    ours = is_entropy(training.loss) and training.optimizer is None
    return ours and not hooked and all(type(part).__module__.startswith(known) for part in parts)


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
def deterministic(device: str) -> Iterator[None]:
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
