"""What a hostile reading of side statistics found: each test fails until its finding is fixed."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nestegg
from nestegg.mechanism.randomness import Randomness
from nestegg.mechanism.side import Estimate
from nestegg.training import Federation, LocalTraining, Mechanics, Performance, SideStatistics
from nestegg.training.workers import Workers

CLIENTS = 6


class Remembering(nn.Module):
    """Scales by the largest number that it has ever seen: memory that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.largest = nn.Linear(4, 2), 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        self.largest = max(self.largest, float(inputs.abs().max()))
        outputs: Tensor = self.linear(inputs) / (1.0 + self.largest)
        return outputs


class Drawing(nn.Module):
    """Draws while it is measured, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(nn.functional.dropout(inputs, 0.5, training=True))
        return outputs


def _plan() -> nestegg.Plan:
    return nestegg.plan([nestegg.Group("all", CLIENTS, nestegg.Budget(50.0))], rounds=2)


def _made(model: nn.Module, loud: float = 1.0, **more: Any) -> Federation:
    clients = []
    for number in range(CLIENTS):
        stream = torch.Generator().manual_seed(number)
        x, y = torch.randn(10, 4, generator=stream), torch.randint(2, (10,), generator=stream)
        clients.append((x * (loud if number == 0 else 1.0), y))
    mechanics = Mechanics(side=SideStatistics(curve_share=0.2), randomness=Randomness(1, True))
    return Federation(_plan(), copy.deepcopy(model), clients, mechanics=mechanics, **more)


def test_what_a_client_measures_does_not_depend_on_who_was_measured_before() -> None:
    torch.manual_seed(0)
    model, said = Remembering(), []
    for loud in (1.0, 1e6):
        federation = _made(model, loud, performance=Performance(workers=1))
        assert isinstance(federation.workers, Workers)
        witness = federation.workers._witness
        assert witness is not None
        said.append(witness.values(federation.start().model, [0, 1, 2], 1, np.full(3, True))[1:])
    np.testing.assert_array_equal(said[0], said[1])  # clients 1 and 2 are the same in both worlds


def test_statistics_have_the_same_bits_for_any_number_of_workers_where_a_model_draws() -> None:
    torch.manual_seed(0)
    model, losses = Drawing(), []
    for workers in (1, 2):
        torch.manual_seed(5)
        _, reports = nestegg.train(_made(model, performance=Performance(workers=workers)))
        losses.append([report.side["loss"] for report in reports])
    assert losses[0] == losses[1]


def test_replay_learns_the_norm_that_the_loop_learns() -> None:
    from nestegg.audit.claims import Claims
    from nestegg.audit.replay import _learnt

    side, plan = SideStatistics(clip_share=1e-4, step=10.0), _plan()
    claims = Claims(plan, Mechanics(side=side, clip_unit="update"), LocalTraining())
    mean = -4.0 * claims.side_stds(0, plan.clip_norm)["below_std"]
    total = mean * claims._weight(0, plan.clip_norm) * side.clip_share**0.5
    state: Any = SimpleNamespace(round=0, clip_norm=plan.clip_norm)
    attacked: Any = SimpleNamespace(claims=claims)
    assert _learnt(attacked, state, total) == pytest.approx(side.next_norm(plan.clip_norm, Estimate(mean, 1.0)))
