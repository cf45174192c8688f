"""Clients who hold samples back: what they never train on, and measure on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from nestegg.errors import InputError
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.training.clients import Clients, Integers
from nestegg.training.local import Samples
from nestegg.training.samples import joined


class HoldingBack:
    """Clients of whose samples a share is held back, chosen by a public draw of each client's own.

    Whoever has two samples or more keeps one at least of either kind; whoever has one trains on it. No round goes into
    the draw, so that all rounds hold the same samples back. It is repeated where it is needed: that takes 0.06 ms, and
    nothing is kept for clients who may be millions.

    Attributes:
        inside: the clients, with all of their samples.
    """

    def __init__(self, clients: Clients, share: float, randomness: Randomness) -> None:
        self.inside, self._share, self._randomness = clients, share, randomness
        self.zeros, self.empty, self.is_lazy = clients.zeros, clients.empty, clients.is_lazy
        self.sizes: Integers | None = None
        if clients.zeros[1].is_floating_point():
            raise InputError("curve_share counts right answers: targets must be classes, and they are numbers.")
        if clients.sizes is not None:
            self.sizes = np.array([size - self._count(size) for size in clients.sizes.tolist()], np.int64)

    def __len__(self) -> int:
        return len(self.inside)

    @property
    def waited(self) -> float:
        """Seconds that loading single clients has waited in this process."""
        return self.inside.waited

    def samples(self, client: int) -> Samples:
        """Return what a client trains on."""
        return self._part(client, is_held=False)

    def held(self, client: int) -> Samples:
        """Return what a client holds back."""
        return self._part(client, is_held=True)

    def rows(self, block: Sequence[int]) -> tuple[Tensor, Tensor, Integers]:
        """Return what some clients train on, one after the other, and how many samples each has."""
        return joined([self.samples(client) for client in block])

    def announce(self, block: Sequence[int]) -> None:
        """Hear of clients who will be asked for soon."""
        self.inside.announce(block)

    def keys(self, block: Sequence[int]) -> Integers:
        """Return what the shuffles of some clients are keyed by."""
        return self.inside.keys(block)

    def expect(self, labels: int | None) -> None:
        """Refuse targets that are no labels below this number."""
        self.inside.expect(labels)

    def move(self, device: str) -> None:
        """Have everybody's data on another device from now on."""
        self.inside.move(device)
        self.zeros = self.inside.zeros

    def fingerprint(self) -> Iterable[Tensor | bytes]:
        """Return what changes when anybody's data does; a secret."""
        return self.inside.fingerprint()

    def fingerprints(self) -> Sequence[bytes] | None:
        """Return for each client what changes when its data does."""
        return self.inside.fingerprints()

    def _count(self, size: int) -> int:
        return min(max(1, round(self._share * size)), size - 1) if size else 0

    def _part(self, client: int, *, is_held: bool) -> Samples:
        x, y = self.inside.samples(client)
        (key,) = self.inside.keys([client]).tolist()
        order = self._randomness.stream(Purpose.PARTITION, client=key).permutation(len(y))
        held, trained = np.split(order, [self._count(len(y))])
        index = torch.from_numpy(np.sort(held if is_held else trained)).to(x.device)
        return x[index], y[index]
