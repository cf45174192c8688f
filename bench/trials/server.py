"""What the server may do for free: functions of released models alone, so that privacy costs nothing more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bench.trials.idea import Idea, Released
from nestegg.training import Federation


@dataclass(eq=False)
class LastModels(Idea):
    """Average the last models, each counting the same.

    Sensitivity: post-processing of released models.
    """

    last: int

    def begin(self, federation: Federation) -> None:
        """Start with no model."""
        self.kept: list[Tensor] = []

    def next(self, released: Released) -> Tensor:
        """Keep the model."""
        model = super().next(released)
        self.kept = [*self.kept, model][-self.last :]
        return model

    def final(self, model: Tensor) -> Tensor:
        """Return the average."""
        return torch.stack(self.kept).mean(dim=0)


@dataclass(eq=False)
class MovingAverage(Idea):
    """Average all models, older ones counting less: by powers of a factor, or polynomially (Shamir and Zhang 2013).

    Sensitivity: post-processing of released models.

    Attributes:
        keep: of the average, in each round.
        power: instead of `keep`: the new model counts (power + 1) / (t + power).
    """

    keep: float = 0.0
    power: float | None = None

    def begin(self, federation: Federation) -> None:
        """Start with the first model."""
        self.average = federation.start().model

    def next(self, released: Released) -> Tensor:
        """Let the model count."""
        model = super().next(released)
        new = 1.0 - self.keep if self.power is None else (self.power + 1.0) / (released.round + self.power)
        self.average = self.average + new * (model - self.average)
        return model

    def final(self, model: Tensor) -> Tensor:
        """Return the average."""
        return self.average


@dataclass(eq=False)
class Momentum(Idea):
    """Add a part of the last step to each step; damped, it is a low-pass filter over the rounds.

    Sensitivity: post-processing of released updates.

    Attributes:
        keep: β.
        damped: whether steps are means of updates, Σ β^k u_{t−k} / Σ β^k, as in DOPPLER (Zhang et al. 2024).
        rate: of the clients; a sum of updates is longer, so they may learn more slowly.
    """

    keep: float
    damped: bool = False
    rate: float = 1.0

    def begin(self, federation: Federation) -> None:
        """Start at rest."""
        self.velocity = torch.zeros_like(federation.start().model)
        self.weight = 0.0

    def next(self, released: Released) -> Tensor:
        """Take a step."""
        self.velocity = self.keep * self.velocity + released.update
        self.weight = self.keep * self.weight + 1.0
        return released.model + (self.velocity / self.weight if self.damped else self.velocity)


@dataclass(eq=False)
class Adam(Idea):
    """Divide each coordinate's mean update by its size, without what noise adds to it (DP-AdamBC, Tang et al. 2024).

    The second moment of noise is known, and subtracted; no coordinate counts as smaller than `floor` of it. Steps are
    as long as those of the mean update itself, so that there is no further rate to choose.

    Sensitivity: post-processing of released updates; the noise's variance is public.
    """

    first: float = 0.5
    second: float = 0.9
    floor: float = 0.1

    def begin(self, federation: Federation) -> None:
        """Start without moments."""
        self.mean = torch.zeros_like(federation.start().model)
        self.square = torch.zeros_like(self.mean)
        self.noise = 0.0

    def next(self, released: Released) -> Tensor:
        """Take a step."""
        u, t = released.update, released.round
        self.mean = self.first * self.mean + (1.0 - self.first) * u
        self.square = self.second * self.square + (1.0 - self.second) * u.square()
        self.noise = self.second * self.noise + (1.0 - self.second) * released.noise**2
        mean = self.mean / (1.0 - self.first**t)
        signal = (self.square - self.noise).clamp(min=max(self.floor * self.noise, 1e-30))
        direction = mean / signal.sqrt()
        length = torch.linalg.vector_norm(mean) / torch.linalg.vector_norm(direction).clamp(min=1e-30)
        return torch.add(released.model, direction * length)


@dataclass(eq=False)
class Shrinkage(Idea):
    """Shorten the update by what noise has made it longer (James and Stein 1961, positive part), whole or by rows.

    A row is what one output has of a layer's weights; biases of a layer are one row.

    Sensitivity: post-processing of released updates; the noise's variance is public.
    """

    by_row: bool = False

    def begin(self, federation: Federation) -> None:
        """Know the rows."""
        self.layout = federation.layout

    def next(self, released: Released) -> Tensor:
        """Take the shorter step."""
        if not self.by_row:
            return released.model + shrunk(released.update[None], released.noise)[0]
        pieces = [
            shrunk(piece.flatten(1) if piece.dim() > 1 else piece[None], released.noise).flatten()
            for piece in self.layout.split(released.update)
        ]
        return released.model + torch.cat(pieces)


def shrunk(rows: Tensor, noise: float) -> Tensor:
    """Return rows that had noise of a standard deviation in each coordinate, each nearer to zero."""
    least = max(rows.shape[1] - 2, 0) * noise**2
    factor = (1.0 - least / rows.square().sum(dim=1).clamp(min=1e-30)).clamp(min=0.0)
    return rows * factor[:, None]
