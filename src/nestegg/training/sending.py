"""What a process on another machine needs to train blocks, and how it is sent there."""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestegg.mechanism.randomness import Randomness
from nestegg.training.blocks import Engine
from nestegg.training.clients import Clients, ClientsInMemory
from nestegg.training.engines import make_engine
from nestegg.training.holding import HoldingBack
from nestegg.training.local import LocalTraining
from nestegg.training.performance import Performance
from nestegg.training.side import SideStatistics, Witness

Parcel = list[Any]  # a pickle, Python's path, and arrays that a node's processes share


@dataclass(frozen=True, eq=False)
class Outfit:
    """All that training blocks takes, besides the model's weights: an engine and a witness are made of it, anywhere.

    Noise and cohorts are not among it: nobody but the process that leads a run draws them.

    Attributes:
        performance: engine, device and precision.
        model: that is trained.
        clients: their data, or where it is loaded from.
        local: what they do.
        randomness: of shuffles.
        side: what they say besides their updates.
        instruction_set: to which the kernel is held on all machines, as `kernel.chosen` takes it.
    """

    performance: Performance
    model: nn.Module
    clients: Clients
    local: LocalTraining
    randomness: Randomness
    side: SideStatistics
    instruction_set: str | None = None

    def engine(self) -> tuple[Engine, str]:
        """Return the engine, and why it was taken."""
        parts = (self.performance, self.model, self.clients, self.local, self.randomness)
        return make_engine(*parts, self.instruction_set)

    def witness(self) -> Witness | None:
        """Return what computes side statistics, if clients say any."""
        if not self.side.shares:
            return None
        held = self.clients if isinstance(self.clients, HoldingBack) else None
        return Witness(self.side, self.model, held, loss=self.local.loss, randomness=self.randomness)


def pack(outfit: Outfit) -> Parcel:
    """Return an outfit as bytes and arrays: data that is in memory, which the processes of a node share and only read.

    Whatever else is sent, such as a source of one's own, every process has for itself, and may change.
    """
    from ray import cloudpickle

    clients = outfit.clients.inside if isinstance(outfit.clients, HoldingBack) else outfit.clients
    pairs = clients.pairs if isinstance(clients, ClientsInMemory) else []
    shared = {part.data_ptr() for pair in pairs for part in pair if part.is_contiguous() and part.numel()}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, one: Any) -> Any:
            if type(one) is Tensor and one.dtype != torch.bfloat16 and one.data_ptr() in shared:
                return as_tensor, (one.detach().numpy(),)
            return super().reducer_override(one)

    arrays: list[NDArray[np.uint8]] = []

    def is_copied(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if not raw.nbytes or (array := np.frombuffer(raw, np.uint8)).ctypes.data not in shared:
            return True
        arrays.append(array)
        return False

    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=is_copied).dump(outfit)
    return [file.getvalue(), sys.path, *arrays]


def unpack(parcel: Parcel) -> Outfit:
    """Return the outfit; what the sender can import is looked for at the same places here."""
    content, path, *arrays = parcel
    sys.path.extend(place for place in path if place not in sys.path)
    outfit: Outfit = pickle.loads(content, buffers=arrays)  # of the run's own process, over its own cluster
    return outfit


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor, also one that may only be read, as those are that processes share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
