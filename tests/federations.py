"""Federations of ten clients of digits, for the tests of training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nestegg import Budget, Group, LocalTraining, Mechanics, Performance, Plan, Randomness, RoundReport, train
from nestegg.models import make_model
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
    return assembled(made, model, clients, **{"local": TRAINING, "seed": 5, "reproducible": True, **changes})


def assembled(made: Plan, model: nn.Module, clients: Any, **changes: Any) -> Federation:
    """A federation from single values: those of its parts, by name."""
    parts: dict[str, Any] = {name: changes.pop(name) for name in ("test",) if name in changes}
    local = changes.pop("local", LocalTraining())
    if "loss" in changes:
        local = replace(local, loss=changes.pop("loss"))
    mechanics = changes.pop("mechanics", Mechanics())
    if "adaptive" in changes:
        mechanics = replace(mechanics, adaptive=changes.pop("adaptive"))
    given = Randomness(changes.pop("seed", 0), changes.pop("reproducible", False))
    mechanics = replace(mechanics, randomness=changes.pop("randomness", given))
    return Federation(
        made, model, clients, local=local, mechanics=mechanics, performance=Performance(**changes), **parts
    )


def trained(made: Plan, model: nn.Module, clients: Any, **changes: Any) -> tuple[nn.Module, list[RoundReport]]:
    return train(assembled(made, model, clients, **changes))
