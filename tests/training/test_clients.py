"""Clients by name: joined with the plan's groups, loaded when sampled, and nothing of it changes a result."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nestegg import (
    Budget,
    Federation,
    Group,
    InputError,
    LocalTraining,
    Mechanics,
    Performance,
    Randomness,
    plan,
    train,
)
from nestegg.training import clients as module

NAMES = ("ada", "bob", "eve", "joe", "mia", "zoë")
GROUPS = [
    replace(Group("strict", 4, Budget(8.0), saving_rate=0.5), members=("zoë", "ada", "joe", "bob")),
    replace(Group("open", 2, Budget(30.0), saving_rate=0.7), members=("mia", "eve")),
]
PLAN = plan(GROUPS, rounds=4, spending_rate=0.9)
SIMULATED = Mechanics(randomness=Randomness(3, reproducible=True))
LOCAL = LocalTraining(epochs=2, batch_size=4)
ENGINES = ["loop", "auto"]
WORKERS = [1, 2]


def data(name: str, samples: int | None = None) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(sum(map(ord, name)))
    count = 3 + len(name) if samples is None else samples
    return torch.randn(count, 3, generator=rng), torch.randint(0, 2, (count,), generator=rng)


def model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def result(clients: Any, **changes: Any) -> Tensor:
    world = Federation(PLAN, model(), clients, local=LOCAL, mechanics=SIMULATED, performance=Performance(**changes))
    trained, reports = train(world)
    assert all(report.simulation_only_broken_updates == changes.get("broken", 0) for report in reports)
    return nn.utils.parameters_to_vector(trained.parameters()).detach()


class Rows:
    """A table, from which many clients come at once."""

    def __init__(self) -> None:
        self.names = NAMES
        self.pairs = [data(name) for name in NAMES]
        self.sizes = np.array([len(y) for _, y in self.pairs])

    def load(self, name: str) -> Any:
        return self.pairs[NAMES.index(name)]

    def load_rows(self, positions: Any) -> tuple[Tensor, Tensor, Any]:
        x, y = zip(*(self.pairs[i] for i in positions), strict=True)
        return torch.cat(x), torch.cat(y), self.sizes[positions]

    def fingerprint(self) -> bytes:
        return b"rows"


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_depends_on_names_and_data_alone(engine: str, workers: int) -> None:
    """Not on the order of a mapping, on whether data is there or loaded when sampled, or on where it is loaded."""
    options = {"engine": engine, "workers": workers}
    functions: dict[str, Callable[[], Any]] = {name: (lambda name=name: data(name)) for name in NAMES}  # type: ignore[misc]
    ways: list[Any] = [{name: data(name) for name in NAMES}, {name: data(name) for name in reversed(NAMES)}]
    ways += [functions, Rows()]
    first, *others = [result(way, **options) for way in ways]
    assert all(torch.equal(first, other) for other in others)


def test_shuffles_follow_from_names_and_those_of_a_list_from_positions() -> None:
    order = [name for group in GROUPS for name in group.members]
    by_position = result([data(name) for name in order])
    assert not torch.equal(by_position, result({name: data(name) for name in order}))
    world = Federation(PLAN, model(), [data(name) for name in order])
    assert world.names == tuple(f"client-{number}" for number in range(1, 7))
    assert world.clients.keys([4, 2]).tolist() == [4, 2]


def test_everybody_has_the_data_of_that_name() -> None:
    world = Federation(PLAN, model(), {name: data(name) for name in NAMES})
    assert world.names == ("zoë", "ada", "joe", "bob", "mia", "eve")
    for place, name in enumerate(world.names):
        assert torch.equal(world.clients.samples(place)[0], data(name)[0])
        assert PLAN.groups[world.group[place]].group.name == ("open" if name in ("mia", "eve") else "strict")


def test_who_is_missing_on_either_side_is_said() -> None:
    given = {name: data(name) for name in (*NAMES[1:], "max")}
    with pytest.raises(InputError, match="'ada' has no data; 'max' has no budget"):
        Federation(PLAN, model(), given)
    unnamed = plan([Group("a", 3, Budget(8.0)), Group("b", 3, Budget(9.0))], rounds=2)
    with pytest.raises(InputError, match=r"do not say who is in them: give names .* Group\('strict', \['ada', 'bob'\]"):
        Federation(unnamed, model(), {name: data(name) for name in NAMES})
    alone = plan([Group("a", 6, Budget(8.0))], rounds=2)
    assert Federation(alone, model(), {name: data(name) for name in NAMES}).names == NAMES
    with pytest.raises(InputError, match="clients are 5 by name; the plan is for 6"):
        Federation(alone, model(), {name: data(name) for name in NAMES[1:]})


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["raises", "other shape", "other type", "unknown label", "empty"])
def test_a_client_whose_data_cannot_be_used_counts_as_zero(engine: str, workers: int, kind: str) -> None:
    x, y = data("eve")
    bad = {
        "other shape": (torch.ones(5, 4), y[:5]),
        "other type": (x, y.float()),
        "unknown label": (x, y + 7),
        "empty": (x[:0], y[:0]),
    }

    def eve() -> Any:
        if kind == "raises":
            raise OSError("disk gone")
        return bad[kind]

    def functions(last: Any) -> dict[str, Any]:
        return {**{name: (lambda name=name: data(name)) for name in NAMES}, "eve": last}

    everybody = plan([replace(group, saving_rate=None) for group in GROUPS], rounds=2, spending_rate=1.0)
    performance = Performance(engine, workers)
    parts: dict[str, Any] = {"local": LOCAL, "mechanics": SIMULATED, "performance": performance}
    ends, reports = zip(
        *(train(Federation(everybody, model(), functions(last), **parts)) for last in (eve, lambda: (x[:0], y[:0]))),
        strict=True,
    )
    for a, b in zip(*(end.parameters() for end in ends), strict=True):
        assert torch.equal(a, b)
    broken = [report.simulation_only_broken_updates for report in reports[0]]
    assert broken == ([0, 0] if kind == "empty" else [1, 1])


def test_data_is_loaded_in_the_worker_ahead_of_time_and_kept_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(name: str) -> Any:
        with (tmp_path / "log").open("a") as file:
            file.write(f"{os.getpid()} {name}\n")
        return data(name, samples=200)

    clients = {name: (lambda name=name: noted(name)) for name in NAMES}
    result(clients, engine="loop", workers=2)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    here = [name for process, name in lines if process == str(os.getpid())]
    assert here == ["zoë"]  # asked for the shape of the data
    loads = len(lines)
    monkeypatch.setattr(module, "_CACHE", 5000)  # bytes: one client's at a time
    result(clients, engine="loop", workers=2)
    assert len((tmp_path / "log").read_text().splitlines()) - loads > loads


def test_a_source_without_data_is_refused() -> None:
    def gone() -> Any:
        raise FileNotFoundError("nothing there")

    with pytest.raises(InputError, match="clients have no data that could be read: FileNotFoundError: nothing there"):
        Federation(PLAN, model(), dict.fromkeys(NAMES, gone))
    with pytest.raises(InputError, match="clients have no data that could be read: nobody has any"):
        Federation(PLAN, model(), dict.fromkeys(NAMES, lambda: (torch.zeros(0, 3), torch.zeros(0).long())))
