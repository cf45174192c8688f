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

_INTERFACE = 1  # what kernel.c says of itself


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


def _at(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)
