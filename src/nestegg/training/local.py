"""Local training: what a client does from receiving the model to clipping its update (ClientUpdate, lines 1 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nestegg.checks import one_of, positive, whole
from nestegg.errors import InputError
from nestegg.mechanism.randomness import Randomness
from nestegg.planning.curves import CURVES

SCHEDULES = tuple(CURVES)

Samples = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def default_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy; logistic where the model has one output."""
    if outputs.shape[-1] == 1:
        return functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), labels.to(outputs.dtype))
    return functional.cross_entropy(outputs, labels)


@dataclass(frozen=True)
class LocalTraining:
    """What a client does in a round: by default SGD with momentum. The optimiser starts fresh in every round.

    Attributes:
        epochs: L.
        batch_size: B; a client with fewer samples has one smaller batch.
        learning_rate: λ, before its curve.
        momentum: of SGD.
        schedule: the curve of λ over the rounds, which depends on no data: cosine anneals it from its full value
            towards 0, constant does not. One's own is a factor for each round, or a function of the round, from 1, and
            of the number of rounds that returns one.
        loss: of outputs and targets, a mean over the samples of a batch; `nestegg.balanced` where clients have few
            labels. One with a method `for_client(targets)` is made for each client.
        optimizer: makes another optimiser than SGD with momentum, as `torch.optim.Adam` does: it is called with the
            parameters and lr=λ_t, for each client in each round.

    >>> LocalTraining(learning_rate=0.1, schedule=lambda t, rounds: 1 / t).rate(4, rounds=10)
    0.025
    """

    epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.9
    schedule: str | Sequence[float] | Callable[[int, int], float] = "cosine"
    loss: Loss = default_loss
    optimizer: Callable[..., torch.optim.Optimizer] | None = None

    def __post_init__(self) -> None:
        whole("local_epochs", self.epochs, 1)
        whole("batch_size", self.batch_size, 1)
        positive("learning_rate", self.learning_rate)
        if not 0.0 <= self.momentum < 1.0:
            raise InputError(f"momentum = {self.momentum!r} must be at least 0 and below 1.")
        if not isinstance(self.schedule, str) and not callable(self.schedule):
            object.__setattr__(self, "schedule", _factors(self.schedule))
        if isinstance(self.schedule, str):
            one_of("schedule", self.schedule, SCHEDULES)
        for name in ("loss", "optimizer"):
            if not callable(value := getattr(self, name)) and (name, value) != ("optimizer", None):
                raise InputError(f"{name} = {value!r} must be a function.")

    def rate(self, round_: int, rounds: int) -> float:
        """Return λ_t. It depends on no data, so annealing it, and a clip norm in its unit, costs no privacy."""
        if not isinstance(self.schedule, str) and not callable(self.schedule):
            object.__setattr__(self, "schedule", _factors(self.schedule))
        if isinstance(self.schedule, str):
            return self.learning_rate * CURVES[self.schedule](round_, rounds)
        return self.learning_rate * positive(f"schedule of round {round_}", self._factor(round_, rounds))

    def rates(self, rounds: int) -> tuple[float, ...]:
        """Return λ_t of all rounds.

        Raises:
            InputError: one's own curve has another number of rounds, or raises, or is not positive somewhere.
        """
        if isinstance(self.schedule, Sequence) and not isinstance(self.schedule, str) and len(self.schedule) != rounds:
            raise InputError(
                f"schedule has {len(self.schedule)} factors; it must have one for each of {rounds} rounds."
            )
        return tuple(self.rate(round_, rounds) for round_ in range(1, rounds + 1))

    def _factor(self, round_: int, rounds: int) -> Any:
        if not callable(self.schedule):
            return self.schedule[round_ - 1]
        try:
            return self.schedule(round_, rounds)
        except Exception as error:
            raise InputError(f"schedule failed for round {round_}: {type(error).__name__}: {error}.") from None


def _factors(schedule: Any) -> tuple[float, ...]:
    try:
        return tuple(float(factor) for factor in schedule)
    except (TypeError, ValueError):
        raise InputError(
            f"schedule = {schedule!r} must be one of {', '.join(SCHEDULES)}, a factor for each round, or a function."
        ) from None


def batches(
    samples: int, training: LocalTraining, randomness: Randomness, round_: int, client: int
) -> list[NDArray[np.int64]]:
    """Return indices of every batch of every epoch, shuffled anew in each."""
    (orders,) = randomness.orders(round_, [client], [samples], training.epochs)
    return [
        order[start : start + training.batch_size]
        for order in orders
        for start in range(0, samples, training.batch_size)
    ]
