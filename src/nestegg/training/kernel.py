"""The compiled kernel, where there is one: it is built on installation if there is a C compiler.

One library holds it for every instruction set. The widest that the processor has is taken; `NESTEGG_KERNEL` forces
another one, or none. All but `baseline` agree with each other to the bit.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import count, takewhile
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.errors import InputError
from nestegg.mechanism import BELOW

VARIABLE = "NESTEGG_KERNEL"
_INTERFACE = 6  # what kernel.c says of itself


@dataclass(frozen=True)
class Kernel:
    """The kernel for one instruction set: avx512, avx2, neon or baseline."""

    library: ctypes.CDLL
    instruction_set: str

    def __deepcopy__(self, memo: object) -> Kernel:
        """Return itself, for models that hold it: a library is not copied."""
        return self


class Network(NamedTuple):
    """A dense network: units of every layer, inputs first, and whether hyperbolic tangents lie between the layers."""

    units: Sequence[int]
    tanh: bool


class Work(NamedTuple):
    """What every client of a block trains on.

    Attributes:
        samples: all clients', as rows [inputs, 1, what is expected].
        order: of every client and epoch, numbers of samples.
        sizes: samples of every client.
        shifts: (clients, outputs), of single precision: what is added to a client's outputs before the loss, if
            anything.
    """

    samples: Tensor
    order: NDArray[np.int64]
    sizes: NDArray[np.int64]
    shifts: NDArray[np.float32] | None = None


class Steps(NamedTuple):
    """What every client does: L epochs of batches of B, with the learning rate λ_t and a momentum."""

    epochs: int
    batch: int
    rate: float
    momentum: float


def load(asked: str | None = None) -> Kernel | None:
    """Return the kernel in the instruction set that `chosen` names."""
    name = chosen(asked)
    return next((one for one in kernels() if one.instruction_set == name), None)


def kernels() -> list[Kernel]:
    """Return the kernel in every instruction set of this processor, the widest first."""
    library = _library()
    return [] if library is None else [Kernel(library, name) for name in instruction_sets()]


def chosen(asked: str | None = None) -> str | None:
    """Return the instruction set to use: what is asked for, or what `NESTEGG_KERNEL` says, or the processor's widest.

    Asked for may be "none": then there is none.
    """
    available, asked = instruction_sets(), asked or os.environ.get(VARIABLE, "")
    if asked == "none":
        return None
    if asked and asked not in available:
        allowed = ", ".join([*available, "none"])
        raise InputError(f"{VARIABLE} = {asked!r} is not among what this processor has a kernel for: {allowed}.")
    return asked or next(iter(available), None)


def agree(first: str | None, second: str | None) -> bool:
    """Return whether two instruction sets give the same bits."""
    return first == second or not {"baseline", None} & {first, second}


@cache
def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets of this processor that the kernel was compiled for, the widest first."""
    library = _library()
    if library is None:
        return ()
    library.nestegg_instruction_set.restype = ctypes.c_char_p
    names = (library.nestegg_instruction_set(ctypes.c_int64(number)) for number in count())
    return tuple(name.decode() for name in takewhile(bool, names))


@cache
def _library() -> ctypes.CDLL | None:
    spec = find_spec("nestegg.training._kernel")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        return library if library.nestegg_interface() == _INTERFACE else None
    except (OSError, AttributeError):  # built for another machine, or from another version of the source
        return None


def train(kernel: Kernel, model: Tensor, network: Network, work: Work, steps: Steps) -> Tensor:
    """Return the updates of clients that train from a model, (clients, parameters).

    Args:
        kernel: that trains them.
        model: weights, layer by layer.
        network: what they are the weights of.
        work: what each trains on.
        steps: what each does.
    """
    samples, order, sizes, shifts = work
    layers = np.array(network.units, np.int64)
    parameters, samples_taken = int(((layers[:-1] + 1) * layers[1:]).sum()), steps.epochs * sizes.sum()
    if len(model) != parameters or samples.shape[1] != layers[0] + 1 + layers[-1] or len(order) != samples_taken:
        raise ValueError("the kernel was given a model, samples or orders of another size than it would read")
    if not (model.dtype == samples.dtype == torch.float32 and samples.is_contiguous()):
        raise ValueError("the kernel was given numbers that are not of single precision, row by row")
    if shifts is not None and not (shifts.dtype == np.float32 and shifts.shape == (len(sizes), layers[-1])):
        raise ValueError("the kernel was given shifts of another size or precision than it would read")
    model, order, sizes = model.contiguous(), np.ascontiguousarray(order), np.ascontiguousarray(sizes)
    shifts = None if shifts is None else np.ascontiguousarray(shifts)
    updates = torch.empty(len(sizes), len(model))
    whole, real = ctypes.c_int64, ctypes.c_float
    # Where no layer fills half of a vector of sixteen, vectors of eight are faster and give the same bits.
    narrow = kernel.instruction_set == "avx512" and max(network.units[1:]) <= 8
    failed = getattr(kernel.library, f"nestegg_train_{'avx2' if narrow else kernel.instruction_set}")(
        address(samples.data_ptr()),
        whole(samples.shape[1]),
        address(order.ctypes.data),
        address(sizes.ctypes.data),
        whole(len(sizes)),
        whole(steps.epochs),
        whole(steps.batch),
        whole(len(layers) - 1),
        address(layers.ctypes.data),
        whole(network.tanh),
        address(None if shifts is None else shifts.ctypes.data),
        address(model.data_ptr()),
        address(updates.data_ptr()),
        real(steps.rate),
        real(steps.momentum),
    )
    if failed:
        raise MemoryError("not enough memory to train a client")
    return updates


def orders(
    kernel: Kernel,
    key: int,
    clients: Sequence[int] | NDArray[np.int64],
    sizes: NDArray[np.int64],
    starts: NDArray[np.int64],
    epochs: int,
) -> NDArray[np.int64]:
    """Return the orders of `Randomness.orders`, client by client and epoch by epoch, as one sequence.

    Args:
        kernel: that draws them.
        key: of the round.
        clients: what the orders of each are keyed by.
        sizes: samples of every client.
        starts: the number of each client's first sample.
        epochs: L.
    """
    numbers, sizes, starts = (np.ascontiguousarray(part, np.int64) for part in (clients, sizes, starts))
    if not len(numbers) == len(sizes) == len(starts):
        raise ValueError("the kernel was given another number of sizes or starts than of clients")
    order = np.empty(int(sizes.sum()) * epochs, np.int64)
    whole = ctypes.c_int64
    failed = kernel.library.nestegg_orders(
        ctypes.c_uint64(key),
        address(numbers.ctypes.data),
        address(sizes.ctypes.data),
        address(starts.ctypes.data),
        whole(len(numbers)),
        whole(epochs),
        address(order.ctypes.data),
    )
    if failed:
        raise MemoryError("not enough memory to shuffle a client's samples")
    return order


def add_clipped(
    kernel: Kernel,
    updates: Tensor,
    norms: NDArray[np.float64],
    edges: Sequence[int],
    step: float,
    total: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Clip each client's update to its norm and add it to a total, in place; updates stay as they are.

    What a client adds depends on its own row alone, to the bit, on every processor.

    Args:
        kernel: that adds.
        updates: (clients, size), of single precision.
        norms: c_n^t of each client; infinity does not clip.
        edges: where a row is cut into its m pieces, from 0 to its size; each is clipped to c_n^t/√m.
        step: of the lattice: clipped updates are truncated towards zero to whole multiples of it, and the total counts
            these; 0 adds clipped updates as they are.
        total: of `size` numbers.

    Returns:
        The length that each update had; one that is not finite was not added.
    """
    cuts = np.array(edges, np.int64)
    if not (updates.dtype == torch.float32 and updates.device.type == "cpu" and updates.dim() == 2):
        raise ValueError("the kernel was given updates that are not rows of single precision on a CPU")
    if not (cuts[0] == 0 and cuts[-1] == updates.shape[1] and (np.diff(cuts) > 0).all()):
        raise ValueError("the kernel was given edges that do not cut a row into pieces")
    if not (total.dtype == np.float64 and total.flags.c_contiguous and total.shape == updates.shape[1:]):
        raise ValueError("the kernel was given a total of another size or precision than it would write")
    if not (len(norms) == len(updates) and (norms >= 0.0).all()):  # NaN is not: never an update that is not clipped
        raise ValueError("a clip norm is not a number of at least 0")
    if not (np.isfinite(step) and step >= 0.0):
        raise ValueError("the step of the lattice is not a finite number of at least 0")
    updates, norms = updates.contiguous(), np.ascontiguousarray(norms, np.float64)
    lengths = np.empty(len(updates))
    whole, real = ctypes.c_int64, ctypes.c_double
    getattr(kernel.library, f"nestegg_add_clipped_{kernel.instruction_set}")(
        address(updates.data_ptr()),
        whole(len(updates)),
        whole(updates.shape[1]),
        address(cuts.ctypes.data),
        whole(len(cuts) - 1),
        address(norms.ctypes.data),
        real(BELOW),
        real(step),
        address(total.ctypes.data),
        address(lengths.ctypes.data),
    )
    return lengths


def address(number: int | None) -> ctypes.c_void_p:
    """Return where something lies in memory, as the kernel takes it; None is nowhere."""
    return ctypes.c_void_p(number)
