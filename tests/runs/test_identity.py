"""What identifies a run from Python: objects count by their values, also of runs that older versions began."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nestegg
from nestegg import InputError
from nestegg.training import Callback, RoundReport, State
from nestegg.training.values import values_of
from tests.own_federation import make_federation


class Weighted:
    """A loss that is no module, with a value and a tensor."""

    def __init__(self, power: float = 1.0, weight: float = 1.0) -> None:
        self.power, self.weight = power, torch.tensor([weight, 1.0])

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, self.weight) ** self.power


class Both(nn.Module):
    """A loss with a loss inside."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss(label_smoothing=smoothing)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = self.inner(outputs, targets)
        return loss


LOSSES: list[Any] = [
    nn.CrossEntropyLoss(),
    nn.CrossEntropyLoss(label_smoothing=0.1),
    nn.CrossEntropyLoss(reduction="sum"),
    nn.CrossEntropyLoss(torch.tensor([1.0, 2.0])),
    nn.CrossEntropyLoss(torch.tensor([1.0, 3.0])),
    Weighted(),
    Weighted(power=2.0),
    Weighted(weight=2.0),
    Both(0.1),
    Both(0.2),
    nn.functional.cross_entropy,
    partial(nn.functional.cross_entropy, label_smoothing=0.1),
]


def test_losses_of_one_class_are_told_apart_by_their_values() -> None:
    found = [values_of(make_federation(loss=loss), "")["local.loss"] for loss in LOSSES]
    assert len(set(found)) == len(LOSSES)
    again = values_of(make_federation(loss=nn.CrossEntropyLoss(label_smoothing=0.1)), "")["local.loss"]
    assert again == found[1]
    assert "label_smoothing=0.1" in again


class Stop(Callback):
    """Ends a run after its first round."""

    def on_round(self, state: State, report: RoundReport) -> bool:
        return True


def test_a_run_does_not_go_on_with_another_smoothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    nestegg.run(make_federation(loss=LOSSES[1]), folder, callbacks=[Stop()])
    with pytest.raises(InputError, match=r"local\.loss = .*label_smoothing=0\.0.* is not what the run in"):
        nestegg.run(make_federation(loss=LOSSES[0]), folder, resume=True)
    record = json.loads((folder / "run.json").read_text())
    record["values"]["local.loss"] = "torch.nn.modules.loss.CrossEntropyLoss"  # as an older version noted it
    (folder / "run.json").write_text(json.dumps(record))
    for other in (LOSSES[5], LOSSES[10]):
        with pytest.raises(InputError, match=r"local\.loss = .* is not what the run in"):
            nestegg.run(make_federation(loss=other), folder, resume=True)
    nestegg.runs.python.check_same(folder, make_federation(loss=LOSSES[1]), None, "")
