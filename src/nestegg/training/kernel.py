"""The compiled kernel of the dense engine, where there is one: it is built on installation if there is a C compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_INTERFACE = 2  # what kernel.c says of itself
BELOW = 1.0 - 1e-6  # clipping aims this much below the norm, so that no rounding can lift an update over it


@cache
def load() -> ctypes.CDLL | None:
    """The library of `kernel.c`."""
    spec = find_spec("nestegg.training._kernel")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        return library if library.nestegg_interface() == _INTERFACE else None
    except (OSError, AttributeError):  # built for another machine, or from another version of the source
        return None


def train(
    library: ctypes.CDLL,
    model: Tensor,
    units: Sequence[int],
    samples: Tensor,
    order: NDArray[np.int64],
    sizes: NDArray[np.int64],
    epochs: int,
    batch: int,
    rate: float,
    momentum: float,
) -> Tensor:
    """Updates of clients that train from a model, (clients, parameters).

    Args:
        library: of the kernel.
        model: weights, layer by layer.
        units: of every layer, inputs first.
        samples: all clients', as rows [inputs, 1, what is expected].
        order: of every client and epoch, numbers of samples.
        sizes: samples of every client.
        epochs: L.
        batch: B.
        rate: λ_t.
        momentum: of SGD.
    """
    layers = np.array(units, np.int64)
    parameters = int(((layers[:-1] + 1) * layers[1:]).sum())
    if len(model) != parameters or samples.shape[1] != layers[0] + 1 + layers[-1] or len(order) != epochs * sizes.sum():
        raise ValueError("the kernel was given a model, samples or orders of another size than it would read")
    if not (model.dtype == samples.dtype == torch.float32 and samples.is_contiguous()):
        raise ValueError("the kernel was given numbers that are not of single precision, row by row")
    model, order, sizes = model.contiguous(), np.ascontiguousarray(order), np.ascontiguousarray(sizes)
    updates = torch.empty(len(sizes), len(model))
    whole, real = ctypes.c_int64, ctypes.c_float
    failed = library.nestegg_train(
        _at(samples.data_ptr()),
        whole(samples.shape[1]),
        _at(order.ctypes.data),
        _at(sizes.ctypes.data),
        whole(len(sizes)),
        whole(epochs),
        whole(batch),
        whole(len(layers) - 1),
        _at(layers.ctypes.data),
        _at(model.data_ptr()),
        _at(updates.data_ptr()),
        real(rate),
        real(momentum),
    )
    if failed:
        raise MemoryError("not enough memory to train a client")
    return updates


def add_clipped(
    library: ctypes.CDLL,
    updates: Tensor,
    norms: NDArray[np.float64],
    edges: Sequence[int],
    step: float,
    total: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Clip each client's update to its norm and add it to a total, in place; updates stay as they are.

    What a client adds depends on its own row alone, to the bit, on every processor.

    Args:
        library: of the kernel.
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
    library.nestegg_add_clipped(
        _at(updates.data_ptr()),
        whole(len(updates)),
        whole(updates.shape[1]),
        _at(cuts.ctypes.data),
        whole(len(cuts) - 1),
        _at(norms.ctypes.data),
        real(BELOW),
        real(step),
        _at(total.ctypes.data),
        _at(lengths.ctypes.data),
    )
    return lengths


def _at(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)
