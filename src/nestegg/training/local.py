"""Local training: what a client does from receiving the model to clipping its update (ClientUpdate, lines 1 to 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from nestegg.checks import one_of, positive, whole
from nestegg.errors import InputError
from nestegg.randomness import Randomness

SCHEDULES = ("cosine", "constant")
PRECISIONS = ("fp32", "bf16")

Samples = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class LocalTraining:
    """SGD with momentum on a client; the optimiser starts fresh in every round.

    Attributes:
        epochs: L.
        batch_size: B; a client with fewer samples has one smaller batch.
        learning_rate: λ of the first round.
        momentum: of SGD.
        schedule: cosine anneals λ over the rounds, from its full value towards 0; constant does not.
        precision: fp32, or bf16 in the forward pass.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.9
    schedule: str = "cosine"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        whole("local_epochs", self.epochs, 1)
        whole("batch_size", self.batch_size, 1)
        positive("learning_rate", self.learning_rate)
        if not 0.0 <= self.momentum < 1.0:
            raise InputError(f"momentum = {self.momentum!r} must be at least 0 and below 1.")
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("precision", self.precision, PRECISIONS)

    def rate(self, round_: int, rounds: int) -> float:
        """λ_t. It depends on no data, so annealing it, and a clip norm in its unit, costs no privacy."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1.0 + math.cos(math.pi * (round_ - 1) / rounds)) / 2.0


def batches(
    samples: int, training: LocalTraining, randomness: Randomness, round_: int, client: int
) -> list[NDArray[np.int64]]:
    """Indices of every batch of every epoch, shuffled anew in each."""
    (orders,) = randomness.orders(round_, [client], [samples], training.epochs)
    return [
        order[start : start + training.batch_size]
        for order in orders
        for start in range(0, samples, training.batch_size)
    ]


def default_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy; logistic where the model has one output."""
    if outputs.shape[-1] == 1:
        return functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), labels.to(outputs.dtype))
    return functional.cross_entropy(outputs, labels)


def predictions(outputs: Tensor) -> Tensor:
    """Predicted labels."""
    return (outputs.squeeze(-1) > 0).long() if outputs.shape[-1] == 1 else outputs.argmax(dim=-1)


def convolves(model: nn.Module) -> bool:
    """Whether there are convolutions in it."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def channels_last(images: Tensor) -> Tensor:
    """The same images with the channels of a pixel side by side: convolutions on a CPU are much faster so."""
    if images.dim() != 4:
        return images
    return torch.empty_like(images, memory_format=torch.channels_last).copy_(images)
