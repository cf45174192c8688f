"""Adaptive clipping (Andrew et al. 2021): the one method that learns its clip norm, as a small controller on a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestegg.checks import positive, probability
from nestegg.errors import InputError
from nestegg.mechanism import Lattice
from nestegg.planning import Plan

MAX_STEP = 10.0
NORMS = (1e-9, 1e9)  # where a learnt clip norm may go


@dataclass(frozen=True)
class AdaptiveClipping:
    """Moves the clip norm towards a quantile of the update norms, at a share of the same privacy budget.

    Attributes:
        quantile: γ, the share of clients whose updates should lie below the norm.
        step: η_b, of the geometric update.
        bit_noise: σ_b, noise of the sum of bits; by default a twentieth of the expected cohort.
        server_rate: λ_s.
        server_momentum: β_s.
    """

    quantile: float = 0.5
    step: float = 0.2
    bit_noise: float | None = None
    server_rate: float = 1.0
    server_momentum: float = 0.0

    def __post_init__(self) -> None:
        probability("quantile", self.quantile)
        if positive("step", self.step) > MAX_STEP:
            raise InputError(f"step = {self.step!r} must be at most {MAX_STEP:g}.")
        if self.bit_noise is not None:
            positive("bit_noise", self.bit_noise)
        positive("server_rate", self.server_rate)
        if not 0.0 <= self.server_momentum < 1.0:
            raise InputError(f"server_momentum = {self.server_momentum!r} must be at least 0 and below 1.")

    def check(self, plan: Plan) -> None:
        """Refuse a plan in some round of which the bits alone would cost too much, or their noise has no lattice."""
        for sigma, rate in zip(plan.round_noise_multiplier, plan.mean_sampling_rate, strict=True):
            self.noise_of_updates(sigma, rate * plan.clients)
            Lattice.for_noise(self.noise_of_bits(sigma, rate * plan.clients))

    def noise_of_bits(self, total: float, expected_cohort: float) -> float:
        """σ_b; where it is left open, no less than σ̄, so that bits take a quarter of a round's budget at most."""
        return max(expected_cohort / 20.0, total) if self.bit_noise is None else self.bit_noise

    def noise_of_updates(self, total: float, expected_cohort: float) -> float:
        """σ = (σ̄⁻² − (2σ_b)⁻²)^(−1/2): updates and bits together cost what one release with σ̄ would.

        The factor 2 is right because a bit is sent as b − ½, so that a client moves the sum by ½ at most.
        """
        bit_noise = self.noise_of_bits(total, expected_cohort)
        rest = total**-2 - (2.0 * bit_noise) ** -2
        if rest <= 0.0:
            raise InputError(
                f"bit_noise = {bit_noise:g} is too little: the bits alone would cost "
                f"more than noise_multiplier = {total:g} allows; it must be above {total / 2.0:g}."
            )
        return float(rest**-0.5)

    def next_norm(
        self, norm: float, bits: float, total: float, expected_cohort: float, stream: np.random.Generator
    ) -> float:
        """c^{t+1} = c^t exp(−η_b (b̃ − γ)), b̃ the noisy share of updates below the norm.

        `bits` is the sum of b − ½ over the cohort, 1 for an update below the norm. If most are below, the norm shrinks.
        """
        noisy = bits + _noise(self.noise_of_bits(total, expected_cohort), stream)
        share = noisy / expected_cohort + 0.5
        change = np.clip(-self.step * (share - self.quantile), -MAX_STEP, MAX_STEP)
        return float(np.clip(norm * np.exp(change), *NORMS))


def _noise(std: float, stream: np.random.Generator) -> float:
    """Noise for a sum of bits, on a lattice of which ½ is a point too."""
    lattice = Lattice(min(Lattice.for_noise(std).step, 0.5))
    return float(lattice.noise(std, 1, 1, stream)[0]) * lattice.step
