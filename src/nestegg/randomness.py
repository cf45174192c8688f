"""Random numbers: keyed by the operating system for secrets, by (seed, round, client) for what must repeat."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import randomgen


class Purpose(IntEnum):
    """What a stream of random numbers is for. Two purposes never share a stream."""

    PARTITION = 1
    MODEL = 2
    SHUFFLE = 3
    COHORT = 4
    NOISE = 5
    BITS = 6


_SECRET = (Purpose.COHORT, Purpose.NOISE, Purpose.BITS)
SERVER = -1


@dataclass(frozen=True)
class Randomness:
    """Streams keyed by (seed, purpose, round, client), never by history, so that a resumed run repeats itself.

    Attributes:
        seed: of everything that is public, and of everything if `reproducible`.
        reproducible: whether cohorts and noise follow from the seed too. They are then no secret, and the run is not
            for release. Otherwise they come from AES in counter mode under a fresh key of the operating system.
    """

    seed: int
    reproducible: bool

    def stream(self, purpose: Purpose, round_: int = 0, client: int = SERVER) -> np.random.Generator:
        """The stream for one purpose, round and client (or the server)."""
        if purpose in _SECRET and not self.reproducible:
            return np.random.Generator(randomgen.AESCounter(np.random.SeedSequence()))
        key = np.random.SeedSequence((self.seed, int(purpose), round_, client + 1))
        return np.random.Generator(randomgen.AESCounter(key))
