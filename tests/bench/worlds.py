"""Federations on digits that train by an idea, for the tests of trials."""

from __future__ import annotations

from typing import Any

import torch
from bench.trials.engine import equipped
from bench.trials.idea import Idea
from torch import Tensor

from nestegg import Budget, Federation, Group, LocalTraining, Mechanics, Performance, Randomness, plan
from nestegg.models import make_model

GROUPS = [Group("strict", 6, Budget(20.0)), Group("open", 4, Budget(80.0))]
Clients = list[tuple[Tensor, Tensor]]


def world(idea: Idea, clients: Clients, *, private: bool = True, rounds: int = 3, **local: Any) -> Federation:
    """A softmax regression on digits that trains by an idea."""
    clip = 4.0 * idea.clip if private else 1e6
    method: Any = {"method": "optimal"} if private else {"method": "fedavg", "spending_rate": 1.0}
    settings = {"epochs": idea.training.get("local_epochs", 1), "batch_size": idea.training.get("batch_size", 16)}
    federation = Federation(
        plan(GROUPS, rounds=rounds, clip_norm=clip, **method),
        make_model("softmax", torch.Size((1, 8, 8)), 10, seed=1),
        clients,
        local=LocalTraining(**{"learning_rate": 0.2 * idea.rate, **settings, **local}),
        mechanics=Mechanics("flat", randomness=Randomness(7, reproducible=True)),
        performance=Performance(workers=1),
    )
    return equipped(federation, idea)
