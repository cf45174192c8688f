"""The server's part of a round: a plain sum in which a client counts once, and the noise of all, whoever replied."""

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
from nestegg.mechanism import add_noise
from nestegg.randomness import Purpose, Randomness

# The norm of d standard normals is below √d + 8 but for one case in 10^13.
_FAR = 8.0
_BLOCK = 1024


class NoisySum:
    """Replies of a round, added up as they come."""

    def __init__(self, terms: Terms, round_: int, size: int) -> None:
        self._terms, self._round = terms, round_
        self._sum = np.zeros(size, np.float32)
        self._total = torch.from_numpy(self._sum)  # the same memory
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
        update = self._read(reply)
        length = _norm(update)
        if not length <= order.clip_norm + order.noise_std * (np.sqrt(len(update)) + _FAR):
            raise InputError("its update is not finite, or longer than clipping and noise can make it.")
        self._sum += update
        self._counted.add(client)

    def finish(self, randomness: Randomness) -> Tensor:
        """The sum, with the shares that are missing: of those not sampled, lost, refused or too late."""
        std, clients, round_ = self._terms.noise_std(self._round), self._terms.plan.clients, self._round
        stream = randomness.stream(Purpose.NOISE, round_)
        if randomness.reproducible:  # the noise of all is that of the simulator: what clients have added is taken out
            for client in sorted(self._counted):
                share = torch.zeros_like(self._total)
                add_noise(share, std, 1, randomness.stream(Purpose.NOISE, round_, client))
                self._total -= share
            add_noise(self._total, std, clients, stream)
        else:
            add_noise(self._total, std, clients - len(self._counted), stream)
        return self._total

    def _read(self, reply: Message) -> NDArray[np.float32]:
        """The update in a reply. Its bytes must begin as an honest one's do: nothing a stranger wrote is parsed."""
        arrays, size = wire.single_arrays(reply.content), len(self._total)
        array = arrays.get(wire.UPDATE)
        header = _header(size)
        if array is None or len(arrays) != 1 or len(array.data) != len(header) + 4 * size:
            raise InputError("it has not sent an update of this model.")
        if not array.data.startswith(header):
            raise InputError("it has not sent an update of this model.")
        return np.frombuffer(array.data, "<f4", offset=len(header))


def _norm(vector: NDArray[np.float32]) -> float:
    """Euclidean norm, by blocks that are short enough for single precision; what is too large for it is infinite."""
    whole = len(vector) - len(vector) % _BLOCK
    blocks, rest = vector[:whole].reshape(-1, _BLOCK), vector[whole:]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", blocks, blocks).sum(dtype=np.float64) + np.dot(rest, rest)
        return float(np.sqrt(squares))


@cache
def _header(size: int) -> bytes:
    """How NumPy's format begins for a vector of so many numbers in single precision."""
    start = BytesIO()
    np.save(start, np.zeros(0, np.float32))
    empty = start.getvalue()
    start = BytesIO()
    np.lib.format.write_array_header_1_0(start, {"descr": "<f4", "fortran_order": False, "shape": (size,)})
    return empty[:8] + start.getvalue()[8:]
