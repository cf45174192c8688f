"""The public lattice: everything that is released is a whole number of steps, noise and signal alike.

A sum in floating point plus noise in floating point gives away which sums are possible: the low bits of the result rule
values of the noise out. On a lattice there are no low bits. Clipped updates are truncated to multiples of a step, which
is a power of two about 2^−22 of the noise, and summed exactly; noise is drawn in double precision and rounded. Since
x + round(z) = round(x + z) for a lattice point x, that is post-processing of the Gaussian mechanism. docs/lattice.md
proves it and says what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nestegg.errors import InputError

BITS = 22  # the step is between 2^−23 and 2^−22 of the total noise
ROUNDINGS = 2  # of a share: it is two rounded draws of half its variance
FAR = 12.0  # standard deviations beyond which noise never falls, but for a probability of 4e-33 a coordinate
# Clients whose clipped updates, at most 2^27 steps each, add up to a whole number that double precision holds.
MAX_COHORT = 2**25
_SMALLEST, _LARGEST = 2.0**-100, 2.0**100


@dataclass(frozen=True)
class Lattice:
    """Multiples of a step, a power of two that follows from the plan alone.

    >>> lattice = Lattice.for_noise(3.0)
    >>> lattice.step == 2.0**-21
    True
    """

    step: float

    @classmethod
    def for_noise(cls, std: float) -> Lattice:
        """Return the lattice for a round whose total noise has a standard deviation."""
        if not _SMALLEST <= std <= _LARGEST:  # never a sum without its noise
            raise InputError(f"the noise of a round, {std!r}, must be a number from {_SMALLEST:.0e} to {_LARGEST:.0e}.")
        _, exponent = math.frexp(std)
        return cls(math.ldexp(1.0, exponent - 1 - BITS))

    def noise(self, share: float, shares: int, size: int, stream: np.random.Generator) -> NDArray[np.float64]:
        """Draw the sum of so many shares of noise, as whole numbers of steps.

        A share is `ROUNDINGS` rounded draws, each rounding adds s²/12 to its variance. Many shares are drawn at once
        with the variance that they would have one by one, so that it does not depend on who drew them.

        Args:
            share: standard deviation of one share.
            shares: how many.
            size: coordinates.
            stream: of random numbers.
        """
        if not (math.isfinite(share) and share > 0.0):
            raise ValueError("the standard deviation of a share of noise is not a finite number above 0")
        if not shares:
            return np.zeros(size)
        variance = shares * (share / self.step) ** 2 + ROUNDINGS * (shares - 1) / 12.0
        total = np.zeros(size)
        for _ in range(ROUNDINGS):
            draw = stream.standard_normal(size)
            draw *= math.sqrt(variance / ROUNDINGS)
            total += np.rint(draw, out=draw)
        return total


def share_std(total_std: float, clients: int, colluders: int) -> float:
    """Return the standard deviation of one client's share of the round's noise.

    Clients know their own shares, so k who collude can take theirs out: the others' shares alone must then do, and
    each variance grows by N/(N − k).
    """
    return total_std / math.sqrt(clients - colluders)


def rounding_epsilon(shares: int, coordinates: int, rounds: int, bits: int = BITS) -> float:
    """Return what it costs in ε, at most, that noise is a sum of rounded shares instead of one rounded Gaussian.

    n rounded draws of the same total variance differ from a Gaussian in their fourth cumulant, −n s⁴/120, first. The
    logarithm of the ratio is therefore n (s/σ)⁴ |He₄(x)|/2880 at x standard deviations, at most x⁴ instead of He₄, in
    either of two neighbouring worlds, for each coordinate of each round; beyond `FAR` noise does not fall.

    >>> f"{rounding_epsilon(shares=100, coordinates=1_663_370, rounds=25):.1e}"
    '3.9e-16'
    """
    return 2.0 * FAR**4 / 2880.0 * ROUNDINGS * shares * coordinates * rounds * 2.0 ** (-4 * bits)
