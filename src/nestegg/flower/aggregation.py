"""The server's part of a round: an exact sum in which a client counts once, and the noise of all, whoever replied."""

from __future__ import annotations

from functools import cache
from io import BytesIO

import numpy as np
import torch
from flwr.app import Message
from numpy.typing import NDArray
from torch import Tensor

from nestegg.errors import InputError
from nestegg.flower import wire
from nestegg.flower.terms import Order, Terms
from nestegg.mechanism.randomness import Purpose, Randomness

# The norm of d standard normals is below √d + 8 but for one case in 10^13.
_FAR = 8.0
_POINT = np.dtype("<i4")  # a lattice point as it travels


class NoisySum:
    """Replies of a round, added up as they come."""

    def __init__(self, terms: Terms, round_: int, size: int, learnt: float = 0.0) -> None:
        self._terms, self._round, self._lattice = terms, round_, terms.lattice(round_, learnt)
        self._std = terms.noise_std(round_, learnt)
        self._sum = np.zeros(size, np.int64)  # in steps of the lattice: exact, in whatever order replies come
        self._counted: set[int] = set()

    def add(self, client: int, order: Order, reply: Message) -> None:
        """Count a client's reply.

        Args:
            client: its number in the roster.
            order: what it was asked for.
            reply: what came back.

        Raises:
            InputError: the reply is an error, comes twice, or is nothing that an honest client sends. The client then
                counts as one that did not reply.
        """
        if client in self._counted:
            raise InputError("it has replied before.")
        if reply.has_error():
            raise InputError("it refused, failed or was lost.")
        points = self._read(reply)
        length = float(np.linalg.norm(points.astype(np.float64))) * self._lattice.step
        if not length <= order.whole_norm + order.noise_std * (np.sqrt(len(points)) + _FAR):
            raise InputError("its update is longer than clipping and noise can make it.")
        self._sum += points
        self._counted.add(client)

    def finish(self, randomness: Randomness) -> Tensor:
        """The sum, with the shares that are missing: of those not sampled, lost, refused or too late."""
        std, clients, size = self._std, self._terms.plan.clients, len(self._sum)
        missing = clients - len(self._counted)
        if randomness.reproducible:  # the noise of all is that of the simulator: what clients have added is taken out
            for client in self._counted:
                stream = randomness.stream(Purpose.NOISE, self._round, client=client)
                self._sum -= self._lattice.noise(std, 1, size, stream).astype(np.int64)
            missing = clients
        noise = self._lattice.noise(std, missing, size, randomness.stream(Purpose.NOISE, self._round))
        return torch.from_numpy((self._sum + noise) * self._lattice.step)

    def _read(self, reply: Message) -> NDArray[np.int32]:
        """The points in a reply. Its bytes must begin as an honest one's do: nothing a stranger wrote is parsed."""
        arrays, size = wire.single_arrays(reply.content), len(self._sum)
        array = arrays.get(wire.UPDATE)
        header = _header(size)
        if array is None or len(arrays) != 1 or len(array.data) != len(header) + _POINT.itemsize * size:
            raise InputError("it has not sent an update of this model.")
        if not array.data.startswith(header):
            raise InputError("it has not sent an update of this model.")
        return np.frombuffer(array.data, _POINT, offset=len(header))


@cache
def _header(size: int) -> bytes:
    """How NumPy's format begins for a vector of so many lattice points."""
    start = BytesIO()
    np.save(start, np.zeros(0, _POINT))
    empty = start.getvalue()
    start = BytesIO()
    np.lib.format.write_array_header_1_0(start, {"descr": _POINT.str, "fortran_order": False, "shape": (size,)})
    return empty[:8] + start.getvalue()[8:]
