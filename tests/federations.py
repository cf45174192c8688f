"""Federations of ten clients of digits, for the tests of training."""

from __future__ import annotations

from typing import Any

import torch

from nestegg import Budget, Group, LocalTraining, Mechanics, Plan
from nestegg.models import make_model
from nestegg.randomness import Randomness
from nestegg.training import Federation, kernel

GROUPS = [
    Group("a", 6, Budget(8.0), saving_rate=0.5, transition=2),
    Group("b", 4, Budget(20.0), saving_rate=0.7, transition=3),
]
TRAINING = LocalTraining(epochs=2, batch_size=8, learning_rate=0.2)

DENSE = kernel.instruction_sets()  # empty without a C compiler
ENGINES = ("loop", *DENSE)


def federation(clients: Any, made: Plan, name: str = "mlp", **changes: Any) -> Federation:
    model = make_model(name, torch.Size((1, 8, 8)), 10, seed=1)
    training, mechanics = changes.pop("training", TRAINING), changes.pop("mechanics", Mechanics())
    return Federation(made, model, clients, training, mechanics, randomness=Randomness(5, True), **changes)
