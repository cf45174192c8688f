"""What clients may do to their updates before these are clipped, and masks that everybody knows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.trials.idea import Idea, Released
from nestegg.training import Federation

_BEYOND = 2.0  # times its norm: how long a normalised update is before it is clipped
_TINY = 1e-30


@dataclass(eq=False)
class Normalised(Idea):
    """Make every update as long as the client's norm: u → c u / ‖u‖.

    Sensitivity: an update is made longer than its norm, and the mechanism clips it to its norm.
    """

    clip: float = 1.0

    def shape(self, updates: Tensor, norms: NDArray[np.float64], round_: int) -> Tensor:
        """Return longer updates in the same directions; zero stays zero."""
        lengths = torch.linalg.vector_norm(updates, dim=1, keepdim=True)
        longer = _BEYOND * torch.from_numpy(norms).to(updates.dtype)[:, None]
        return torch.mul(updates / lengths.clamp(min=_TINY), longer)


@dataclass(eq=False)
class Shares(Idea):
    """Clip weights and biases each for itself: biases to c √f and weights to c √(1 − f).

    Sensitivity: the squares of the two norms add up to c², and the mechanism clips the whole to c once more.
    """

    biases: float
    clip: float = 1.0

    def begin(self, federation: Federation) -> None:
        """Know which coordinates are biases."""
        layout = federation.layout
        self.is_bias = torch.cat([torch.full((shape.numel(),), len(shape) == 1) for shape in layout.shapes])

    def shape(self, updates: Tensor, norms: NDArray[np.float64], round_: int) -> Tensor:
        """Return updates whose parts are within their norms."""
        whole, result = torch.from_numpy(norms).to(updates.dtype)[:, None], updates.clone()
        for part, share in ((self.is_bias, self.biases), (~self.is_bias, 1.0 - self.biases)):
            lengths = torch.linalg.vector_norm(updates[:, part], dim=1, keepdim=True)
            result[:, part] *= (whole * math.sqrt(share) / lengths.clamp(min=_TINY)).clamp(max=1.0)
        return result


@dataclass(eq=False)
class LargestCoordinates(Idea):
    """Send the largest coordinates of an update alone (local update sparsification, LUS; Cheng et al. 2022).

    Noise falls on all coordinates, for which of them a client sends is a secret of that client.

    Sensitivity: what is left of an update is clipped as any update is.
    """

    share: float
    clip: float = 1.0

    def shape(self, updates: Tensor, norms: NDArray[np.float64], round_: int) -> Tensor:
        """Return updates with zeros in the place of all but the largest coordinates."""
        return largest(updates, self.share)


def largest(updates: Tensor, share: float) -> Tensor:
    """Return updates, one a row, with zeros in the place of all but their largest coordinates."""
    count = max(1, round(share * updates.shape[1]))
    places = updates.abs().topk(count, dim=1).indices
    return torch.zeros_like(updates).scatter_(1, places, updates.gather(1, places))


@dataclass(eq=False)
class PublicMask(Idea):
    """Train a random part of the coordinates in each round, the same for everybody (Fed-SMP, Hu et al. 2023).

    The mask is drawn from public randomness. Noise outside of it is thrown away.

    Sensitivity: what is left of an update is clipped as any update is, and the mask depends on no data.

    Attributes:
        share: of the coordinates.
        scaled: whether the update is divided by the share, which makes its expectation that of the whole update.
        clip: factor of the clip norm: a part of an update is shorter.
    """

    share: float
    scaled: bool = False
    clip: float = 1.0

    def begin(self, federation: Federation) -> None:
        """Know the seed of all that is public, and how many coordinates there are."""
        self.seed, self.size = federation.randomness.seed, federation.layout.size

    def mask(self, round_: int) -> Tensor:
        """Return what everybody trains in a round: ones among zeros."""
        draws = np.random.default_rng((self.seed, round_)).random(self.size)
        return torch.from_numpy((draws < self.share).astype(np.float32))

    def shape(self, updates: Tensor, norms: NDArray[np.float64], round_: int) -> Tensor:
        """Return updates within the mask."""
        return updates * self.mask(round_)

    def next(self, released: Released) -> Tensor:
        """Take what is within the mask."""
        part = released.update * self.mask(released.round)
        return released.model + (part / self.share if self.scaled else part)
