"""What a plan promises, round by round, in the unit in which updates are clipped; computed from its rows alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import Array
from nestegg.planning import Plan
from nestegg.training import LocalTraining, Mechanics, SideStatistics


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

    @property
    def side(self) -> SideStatistics:
        """What clients say besides their updates."""
        return self.mechanics.side if self.plan.is_private else SideStatistics()

    @property
    def learns_clip_norm(self) -> bool:
        """Whether the clip norm is learnt, by the method or from a side statistic."""
        return self.plan.about.learns_clip_norm or self.side.clip_share > 0.0

    @property
    def rest(self) -> float:
        """The part of a clip norm that updates have."""
        return float(np.sqrt(1.0 - self.side.clip_share - self.side.curve_share))

    def std(self, t: int, clip_norm: float) -> float:
        """Total noise of a round, before it is divided: c σ^t, c being learnt or the plan's own."""
        c = clip_norm if self.learns_clip_norm else self.plan.clip_norm
        return float(c * self.units[t] * self.noise_of_updates(t) * self.spare)

    def norm(self, group: int, t: int, clip_norm: float) -> float:
        """A client's clip norm in a round, in the unit of updates."""
        if self.plan.about.learns_clip_norm:
            return float(clip_norm * self.units[t])
        return float(self.norms[group, t] * (clip_norm / self.plan.clip_norm if self.learns_clip_norm else 1.0))

    def side_sums(self, said: Mapping[str, float], t: int, clip_norm: float) -> Array:
        """The noisy sums of side statistics, as what is released of them tells: (statistics,), in the unit of updates.

        A statistic of s from −1 to 1 is the coordinate √f c_n s, and a mean is divided by Σ q_n c_n √f.
        """
        side, heard = self.side, []
        if side.clip_share:
            heard.append((2.0 * said["below"] - 1.0, side.clip_share))
        if side.curve_share:
            heard.append((said["accuracy"] / 50.0 - 1.0, side.curve_share / 2.0))
            heard.append((1.0 - 2.0 * said["loss"] / side.largest_loss, side.curve_share / 2.0))
        return np.array([mean * self._weight(t, clip_norm) * np.sqrt(share) for mean, share in heard])

    def side_stds(self, t: int, clip_norm: float) -> dict[str, float]:
        """Noise of what is released of side statistics, by the name it has there."""
        side, noise = self.side, self.std(t, clip_norm) / self._weight(t, clip_norm)
        stds = {"below_std": noise / np.sqrt(side.clip_share) / 2.0} if side.clip_share else {}
        if side.curve_share:
            each = noise / np.sqrt(side.curve_share / 2.0)
            stds |= {"accuracy_std": 50.0 * each, "loss_std": side.largest_loss / 2.0 * each}
        return stds

    def _weight(self, t: int, clip_norm: float) -> float:
        norms = np.array([self.norm(group, t, clip_norm) for group in range(len(self.sizes))])
        return float((self.sizes * self.rates[:, t] * norms).sum())
