"""Random numbers: keyed by the operating system for secrets, by (seed, round, client) for what must repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import randomgen
from numpy.typing import NDArray


class Purpose(IntEnum):
    """What a stream of random numbers is for. Two purposes never share a stream."""

    PARTITION = 1
    MODEL = 2
    SHUFFLE = 3
    COHORT = 4
    NOISE = 5
    BITS = 6
    MEASURING = 7


_SECRET = (Purpose.COHORT, Purpose.NOISE, Purpose.BITS)
SERVER = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Randomness:
    """Streams keyed by (seed, purpose, round, client), never by history, so that a resumed run repeats itself.

    Attributes:
        seed: of everything that is public, and of everything if `reproducible`.
        reproducible: whether cohorts and noise follow from the seed too. They are then no secret, and the run is not
            for release. Otherwise they come from AES in counter mode under a fresh key of the operating system.
    """

    seed: int = 0
    reproducible: bool = False

    def stream(self, purpose: Purpose, round_: int = 0, *, client: int = SERVER) -> np.random.Generator:
        """The stream for one purpose, round and client (or the server)."""
        if purpose in _SECRET and not self.reproducible:
            return np.random.Generator(randomgen.AESCounter(np.random.SeedSequence()))
        key = np.random.SeedSequence((self.seed, int(purpose), round_, client + 1))
        return np.random.Generator(randomgen.AESCounter(key))

    def order_key(self, round_: int) -> int:
        """The key of a round's orders."""
        return int(np.random.SeedSequence((self.seed, int(Purpose.SHUFFLE), round_)).generate_state(1, np.uint64)[0])

    def orders(self, round_: int, clients: Sequence[int], sizes: Sequence[int], epochs: int) -> NDArray[np.int64]:
        """The order in which clients take their samples in every epoch of a round: (clients, epochs, largest size).

        The first of each row are the client's own numbers, the rest is padding; they do not depend on whom a client is
        computed with. Orders are public, and drawn for all clients at once.
        """
        key = np.array([self.order_key(round_)], np.uint64)
        states = _outputs(key + np.array(clients, np.uint64) * _GOLDEN, 1)[:, 0]
        draws = _outputs(_outputs(states, epochs), max(sizes))
        missing = np.arange(draws.shape[2]) >= np.array(sizes)[:, None]
        return np.argsort(np.where(missing[:, None], np.uint64(2**64 - 1), draws), axis=-1)


def _outputs(states: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """The first outputs of SplitMix64 generators (Steele, Lea and Flood 2014), (…, count) from states (…)."""
    z: NDArray[np.uint64] = states[..., None] + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
