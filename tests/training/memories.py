"""Trainings whose memory is measured: one on a quadratic bowl, where it can be computed, and a configuration."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import nestegg

ROUNDS, CURVATURE = 8, 0.6

CONFIG = """
[federation]
dataset = "fashion-mnist"
data = "/not/there"
clients = 10
[model]
name = "linear"
[training]
rounds = 4
local_epochs = 1
[privacy]
method = "optimal"
influence = "influence.json"
[[privacy.groups]]
name = "all"
share = 1.0
epsilon = 5.0
"""


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square().mean() / 2.0


def bowl(
    method: str = "fedavg", *, start: float = 0.0, rate: float = 1.0, clip_norm: float = 10.0, **changes: Any
) -> nestegg.Federation:
    """Everybody's loss is a w²/2 and a constant, and each takes one step of gradient descent a round.

    Budgets are generous, so that noise never takes the model to where updates of the default clip norm are clipped.
    """
    x, y = torch.full((2, 1), CURVATURE**0.5), torch.tensor([1.0, -1.0])
    groups = [nestegg.Group("all", 3, nestegg.Budget(50.0))]
    options: dict[str, Any] = {
        "local": nestegg.LocalTraining(1, 2, learning_rate=0.9, momentum=0.0, loss=squares),
        "mechanics": nestegg.Mechanics(randomness=nestegg.Randomness(1, reproducible=True)),
        "test": (x, y),
    }
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, start)
    made = nestegg.plan(groups, ROUNDS, method=method, spending_rate=rate, clip_norm=clip_norm)
    return nestegg.Federation(made, model, [(x, y)] * 3, **options | changes)
