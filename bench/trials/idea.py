"""What an idea is: something that clients or the server do otherwise, inside the same mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nestegg.training import Federation


class Released(NamedTuple):
    """What everybody may know after a round.

    Attributes:
        round: its number, from 1.
        model: before the round.
        update: the mean of clipped updates, with its noise.
        noise: standard deviation of the noise in each coordinate of the update.
        rate: λ_t.
    """

    round: int
    model: Tensor
    update: Tensor
    noise: float
    rate: float


class Idea:
    """Nothing: what every idea is compared with. An idea overrides what it does otherwise.

    Sensitivity: a client's update is clipped to its norm after whatever `shape` does, so that every idea has the
    noise, and the guarantee, of the plan; what the server does sees nothing but what is released.

    Attributes:
        rate: factor of the learning rate.
        clip: factor of the clip norm, in the unit of gradients; the noise has it too.
    """

    rate: float = 1.0
    clip: float = 1.0

    @property
    def training(self) -> Mapping[str, Any]:
        """Other values for the training table of a configuration."""
        return {}

    def begin(self, federation: Federation) -> None:
        """Forget the last run; a subclass makes its state here."""

    def shape(self, updates: Tensor, norms: NDArray[np.float64], round_: int) -> Tensor:
        """Return what clients clip in the place of their updates, one a row, each from its own row and norm alone."""
        return updates

    def next(self, released: Released) -> Tensor:
        """Return the model of the next round."""
        return released.model + released.update

    def final(self, model: Tensor) -> Tensor:
        """Return the model that is used, from that after the last round."""
        return model


class Step(NamedTuple):
    """Where a client is in its local training.

    Attributes:
        client: its place in the plan.
        start: the round's model.
        weights: now.
        slope: the gradient on this step's batch at any weights.
        rate: λ_t.
        norm: the client's clip norm, in the unit of updates.
    """

    client: int
    start: Tensor
    weights: Tensor
    slope: Callable[[Tensor], Tensor]
    rate: float
    norm: float


class LocalIdea(Idea):
    """An idea about the steps of local training: it runs in `bench.trials.engine`."""

    def gradient(self, step: Step) -> Tensor:
        """Return what SGD with momentum takes for the gradient."""
        return step.slope(step.weights)

    def leave(self, step: Step, steps: int) -> None:
        """Hear of a client that has trained: its last step, and how many it took."""


@dataclass(eq=False)
class Settings(Idea):
    """Other settings of local training.

    Sensitivity: they change what a client computes from its own data, before it is clipped.
    """

    epochs: int | None = None
    batch_size: int | None = None
    rate: float = 1.0
    clip: float = 1.0

    @property
    def training(self) -> Mapping[str, Any]:
        """The epochs and the batch size, where they are others."""
        given = {"local_epochs": self.epochs, "batch_size": self.batch_size}
        return {name: value for name, value in given.items() if value is not None}


EVERYTHING = 2**30  # a batch size that is the whole data of any client
