"""What a plan promises, round by round, in the unit in which updates are clipped; computed from its rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import Array
from nestegg.planning import Plan
from nestegg.training import LocalTraining, Mechanics


@dataclass(frozen=True)
class Claims:
    """A plan's rows as arrays of (group, round), and what follows from them.

    Nothing here calls the code that is audited: sums, noise and norms are written down once more, from the paper.
    """

    plan: Plan
    mechanics: Mechanics
    local: LocalTraining

    @cached_property
    def sizes(self) -> Array:
        """Clients of each group."""
        return np.array([row.group.clients for row in self.plan.groups], np.float64)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """The group of each client."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes.astype(np.int64))

    @cached_property
    def rates(self) -> Array:
        """q_n^t."""
        return np.array([row.sampling_rate for row in self.plan.groups])

    @cached_property
    def noise(self) -> Array:
        """σ_n^t: noise that a client of the group faces, relative to its clip norm."""
        return np.array([row.noise_multiplier for row in self.plan.groups])

    @cached_property
    def units(self) -> Array:
        """What a clip norm of 1 means in each round: λ_t, or 1 where norms are those of updates."""
        steps = np.array(self.local.rates(self.plan.rounds))
        return steps if self.mechanics.clip_unit == "gradient" else np.ones_like(steps)

    @cached_property
    def norms(self) -> Array:
        """c_n^t, in the unit of updates."""
        return np.array([row.clip_norm for row in self.plan.groups]) * self.units

    @cached_property
    def expected(self) -> Array:
        """Clients that are expected in each round: what the sum is divided by."""
        return np.asarray(self.sizes @ self.rates)

    @cached_property
    def spare(self) -> float:
        """Noise beyond σ_n^t, as a factor: clients who collude can take their own shares out."""
        clients = float(self.sizes.sum())
        return float(np.sqrt(clients / (clients - self.mechanics.colluders)))

    def noise_of_updates(self, t: int) -> float:
        """σ of a round's updates, where a learnt clip norm spends a part of it: σ̄⁻² = σ⁻² + (2 σ_b)⁻²."""
        total = float(self.sizes.sum() / (self.sizes / self.noise[:, t]).sum())
        if not self.plan.about.learns_clip_norm:
            return total
        return float((total**-2 - (2.0 * self.noise_of_bits(t)) ** -2) ** -0.5)

    def noise_of_bits(self, t: int) -> float:
        """σ_b of a round."""
        total = float(self.sizes.sum() / (self.sizes / self.noise[:, t]).sum())
        stated = self.mechanics.adaptive.bit_noise
        return max(float(self.expected[t]) / 20.0, total) if stated is None else stated

    def std(self, t: int, clip_norm: float) -> float:
        """Total noise of a round, before it is divided: c σ^t, c being learnt or the plan's own."""
        c = clip_norm if self.plan.about.learns_clip_norm else self.plan.clip_norm
        return float(c * self.units[t] * self.noise_of_updates(t) * self.spare)

    def norm(self, group: int, t: int, clip_norm: float) -> float:
        """A client's clip norm in a round, in the unit of updates."""
        return float(clip_norm * self.units[t] if self.plan.about.learns_clip_norm else self.norms[group, t])
