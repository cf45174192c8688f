"""Ideas of others about local training, inside our mechanism: what leaves a client is clipped as any update is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.trials.clients import largest
from bench.trials.idea import LocalIdea, Released, Step
from nestegg.training import Federation

_TINY = 1e-30


@dataclass(eq=False)
class SharpnessAware(LocalIdea):
    """Take the gradient at the worst point nearby (SAM at the client; DP-FedSAM, Shi et al. 2023).

    Sensitivity: it changes what a client computes from its own data and the released model, before that is clipped.
    """

    radius: float

    def gradient(self, step: Step) -> Tensor:
        """Return the gradient after a step of the given length uphill."""
        slope = step.slope(step.weights)
        return step.slope(step.weights + slope * (self.radius / slope.norm().clamp(min=_TINY)))


@dataclass(eq=False)
class Bounded(LocalIdea):
    """Hold local training near the clip norm, and send the largest coordinates (BLUR and LUS, Cheng et al. 2022).

    BLUR adds a penalty where an update u is longer than its norm S, (‖u‖² − S²)/2 times a strength, here
    `strength`/λ_t, so that one value suits all learning rates. LUS is `LargestCoordinates`.

    Sensitivity: both change what a client computes from its own data and the released model, before that is clipped.

    Attributes:
        strength: of the penalty.
        share: of the coordinates that are sent.
        clip: factor of the clip norm.
    """

    strength: float
    share: float = 1.0
    clip: float = 1.0

    def gradient(self, step: Step) -> Tensor:
        """Return the gradient of loss and penalty."""
        update, slope = step.weights - step.start, step.slope(step.weights)
        return slope + self.strength / step.rate * update if float(update.norm()) > step.norm else slope

    def shape(self, updates: Tensor, norms: NDArray[np.float64], round_: int) -> Tensor:
        """Return updates with zeros in the place of all but the largest coordinates."""
        return updates if self.share == 1.0 else largest(updates, self.share)


@dataclass(eq=False)
class ControlVariates(LocalIdea):
    """Correct each client's gradients by control variates (DP-SCAFFOLD, Noble et al. 2022), at no price.

    They send two noisy vectors a round, which costs twice the budget in variance. Here a client keeps its own variate
    c_n (the mean gradient of its last round, option II of SCAFFOLD, as far as the clip norm lets it be sent) for
    itself, and the server's variate c is what the released update says of the mean gradient: with everybody in every
    round and equally many steps that is the mean of the c_n, but for the noise.

    Sensitivity: c_n follows from the client's own data and released models, c from released updates alone; what a
    client sends depends on others through what is released only, and is clipped.

    Attributes:
        steps: how many a client takes in a round, about; a public number.
        clip: factor of the clip norm.
    """

    steps: int = 11
    clip: float = 1.0

    def begin(self, federation: Federation) -> None:
        """Start without variates."""
        self.momentum = federation.local.momentum
        self.common = torch.zeros_like(federation.start().model)
        self.own: dict[int, Tensor] = {}

    def gradient(self, step: Step) -> Tensor:
        """Return the corrected gradient."""
        own = self.own.get(step.client)
        correction = self.common if own is None else self.common - own
        return step.slope(step.weights) + correction

    def leave(self, step: Step, steps: int) -> None:
        """Keep the client's mean gradient, at the client."""
        if not step.rate:
            return
        moved = step.start - step.weights
        moved *= min(1.0, step.norm / max(float(moved.norm()), _TINY)) / (step.rate * reach(steps, self.momentum))
        self.own[step.client] = self.own.get(step.client, torch.zeros_like(moved)) - self.common + moved

    def next(self, released: Released) -> Tensor:
        """Take the step, and let it be the mean gradient."""
        self.common = -released.update / (released.rate * reach(self.steps, self.momentum))
        return super().next(released)


def reach(steps: int, momentum: float) -> float:
    """Return how far steps of SGD with momentum go along a gradient that does not change, at a rate of 1."""
    return sum((1.0 - momentum**k) / (1.0 - momentum) for k in range(1, steps + 1))
