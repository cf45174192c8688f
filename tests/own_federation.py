"""A federation of somebody's own model and data: `python -m tests.own_federation FOLDER STEP ROUND` runs it and dies.

STEP is where it dies in ROUND: `save`, `release`, `line` (before each), `told` (when the round is out) or `never`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import nestegg
from nestegg import Budget, Federation, Group, LocalTraining, Mechanics, Performance, Randomness
from nestegg.ledger import RunBooks
from nestegg.runs.folder import StateFolder
from nestegg.training import Callback, RoundReport, State

ROUNDS = 4
NAMES = [f"farm {i}" for i in range(8)]
OWNERS: dict[str, tuple[Any, str]] = {
    "save": (StateFolder, "save_checkpoint"),
    "release": (RunBooks, "release"),
    "line": (StateFolder, "append_line"),
}


class Slope(nn.Module):
    """A model that is none of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(torch.sin(self.hidden(x)))
        return outputs


def make_data(shift: float = 0.0, names: Sequence[str] = NAMES) -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    data = {}
    for name in names:
        x = torch.randn(12, 3, generator=generator)
        data[name] = (x + shift, (x.sum(1) > 0).long())
    return data


def make_plan(rounds: int = ROUNDS, names: Sequence[str] = NAMES, **changes: Any) -> nestegg.Plan:
    groups = [
        Group("strict", 4, Budget(8.0), saving_rate=0.5, members=tuple(names[:4])),
        Group("open", 4, Budget(20.0), saving_rate=0.5, members=tuple(names[4:])),
    ]
    return nestegg.plan(groups, rounds, clip_norm=2.0, **changes)


def make_federation(
    plan: nestegg.Plan | None = None,
    *,
    reproducible: bool = True,
    shift: float = 0.0,
    seed: int = 3,
    names: Sequence[str] = NAMES,
    **local: Any,
) -> Federation:
    torch.manual_seed(seed)
    model, data = Slope(), make_data(shift, names)
    test = make_data()["farm 0"]
    return Federation(
        plan or make_plan(names=names),
        model,
        data,
        local=LocalTraining(**{"epochs": 1, "batch_size": 4, **local}),
        mechanics=Mechanics(randomness=Randomness(seed, reproducible)),
        test=test,
        performance=Performance(workers=1),
    )


class Die(Callback):
    """Kills its own process when a round is out."""

    def __init__(self, round_: int) -> None:
        self.round = round_

    def on_round(self, state: State, report: RoundReport) -> None:
        if report.round == self.round:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, step: str, round_: int) -> None:
    if step in OWNERS:
        owner, name = OWNERS[step]
        original, calls = getattr(owner, name), iter(range(1, ROUNDS + 2))

        def watched(*arguments: Any) -> Any:
            if next(calls) == round_:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        setattr(owner, name, watched)
    nestegg.run(make_federation(), folder, resume=True, callbacks=[Die(round_)] if step == "told" else [])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
