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
    unnamed = plan([replace(group, members=()) for group in GROUPS], rounds=4, spending_rate=0.9)
    world = Federation(unnamed, model(), [data(name) for name in order], local=LOCAL, mechanics=SIMULATED)
    assert world.names == tuple(f"client-{number}" for number in range(1, 7))
    assert world.clients.keys([4, 2]).tolist() == [4, 2]
    by_position = nn.utils.parameters_to_vector(train(world)[0].parameters()).detach()
    assert not torch.equal(by_position, result({name: data(name) for name in order}))


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


def test_data_is_loaded_in_the_worker_and_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(name: str) -> Any:
        with (tmp_path / "log").open("a") as file:
            file.write(f"{os.getpid()} {name}\n")
        return data(name, samples=200)

    clients = {name: (lambda name=name: noted(name)) for name in NAMES}
    result(clients, engine="loop", workers=2)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    here = [name for process, name in lines if process == str(os.getpid())]
    assert sorted(here) == sorted(NAMES)  # once, for the shape of the data
    assert len(lines) > len(here)
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


def test_names_in_groups_are_never_dropped_for_positions() -> None:
    with pytest.raises(InputError, match="groups name their clients: give data by name, not as a list"):
        Federation(PLAN, model(), [data(name) for name in NAMES])


def test_a_name_is_the_same_however_its_unicode_is_composed() -> None:
    composed, apart = "zo\u00eb", "zoe\u0308"
    ways = [
        {**{name: data(name) for name in NAMES if name != composed}, key: data(composed)} for key in (composed, apart)
    ]
    lazy = [{name: (lambda pair=pair: pair) for name, pair in way.items()} for way in ways]
    first, *others = [result(way) for way in (*ways, *lazy)]
    assert all(torch.equal(first, other) for other in others)


class Dropping(nn.Module):
    """A model and data that draw from everybody's generators."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        drawn = torch.as_tensor(np.random.rand(1), dtype=torch.float32)  # noqa: NPY002
        scaled: Tensor = self.layer(nn.functional.dropout(x, 0.5, self.training)) * (1 + drawn)
        return scaled


@pytest.mark.parametrize("workers", WORKERS)
def test_what_one_client_draws_reaches_no_other(workers: int) -> None:
    def noisy(name: str) -> Any:
        x, y = data(name)
        return x + torch.randn_like(x) + float(np.random.rand()), y  # noqa: NPY002

    clients = {name: (lambda name=name: noisy(name)) for name in NAMES}
    torch.manual_seed(7)
    first = Dropping()
    parts: dict[str, Any] = {"local": LOCAL, "mechanics": SIMULATED, "performance": Performance(workers=workers)}
    worlds = [Federation(PLAN, first, clients, **parts) for _ in range(2)]
    start = worlds[0].start().model
    alone = worlds[0].engine.train_block(start, [1], 1, 0.1).clone()
    for other in (0, 4, 2):
        worlds[1].engine.train_block(start, [other], 1, 0.1)
    assert torch.equal(worlds[1].engine.train_block(start, [1], 1, 0.1), alone)
    ends = [nn.utils.parameters_to_vector(train(world)[0].parameters()) for world in worlds]
    assert torch.equal(*ends)


def test_an_odd_client_does_not_decide_for_all() -> None:
    x, y = data("zoë")
    clients: dict[str, Any] = {name: (lambda name=name: data(name)) for name in NAMES}
    clients["zoë"] = lambda: (x, y.float())  # the first of the plan
    _, reports = train(Federation(PLAN, model(), clients, mechanics=SIMULATED))
    assert max(report.simulation_only_broken_updates or 0 for report in reports) <= 1


def test_a_source_that_gives_other_rows_than_it_says() -> None:
    class Lying(Rows):
        def load_rows(self, positions: Any) -> tuple[Tensor, Tensor, Any]:
            x, y, sizes = super().load_rows(positions)
            return x, y, sizes * 2

    _, reports = train(Federation(PLAN, model(), Lying(), mechanics=SIMULATED))
    broken = [report.simulation_only_broken_updates for report in reports]
    assert broken == [report.simulation_only_cohort_size for report in reports]


def test_a_client_that_ends_the_process_counts_as_zero() -> None:
    def gone() -> Any:
        raise SystemExit("its file is damaged")

    clients: dict[str, Any] = {name: (lambda name=name: data(name)) for name in NAMES}
    for engine in ENGINES:
        train(Federation(PLAN, model(), {**clients, "eve": gone}, performance=Performance(engine, workers=1)))


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (
            [(torch.ones(2, 3), torch.tensor([0, 1]))] * 5 + [(torch.ones(2, 4), torch.tensor([0, 1]))],
            "client 6 has data of",
        ),
        ([None] * 6, "client 1 has data of type NoneType"),
        ([(np.array(["a", "b"]), np.array([0, 1]))] * 6, "client 1 has data of type tuple"),
        (np.ones((6, 2)), "clients of type ndarray must be a mapping"),
    ],
)
def test_data_that_is_none_is_a_sentence(clients: Any, message: str) -> None:
    made = plan([Group("all", 6, Budget(8.0))], rounds=2)
    with pytest.raises(InputError, match=message):
        Federation(made, model(), clients)


def test_another_plan_must_be_for_the_same_groups() -> None:
    world = Federation(PLAN, model(), {name: data(name) for name in NAMES})
    with pytest.raises(InputError, match="plan must have the groups and rounds"):
        world.by(replace(PLAN, groups=PLAN.groups[::-1]))
    with pytest.raises(InputError, match="needs a Plan and a torch"):
        Federation(PLAN, "mlp", {name: data(name) for name in NAMES})  # type: ignore[arg-type]


def test_a_source_hears_of_clients_before_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, list[int]]] = []

    class Told(Rows):
        def load_rows(self, positions: Any) -> tuple[Tensor, Tensor, Any]:
            events.append(("load", list(positions)))
            return super().load_rows(positions)

        def announce_rows(self, positions: Any) -> None:
            events.append(("announce", list(positions)))
            raise OSError("no such advice")  # which stops nothing

    monkeypatch.setattr("nestegg.training.dense._CLIENTS", 2)  # several blocks
    assert torch.equal(result(Told(), workers=1), result(Rows(), workers=1))
    announced = [(number, who) for number, (what, who) in enumerate(events) if what == "announce"]
    assert announced
    for number, who in announced:
        assert who
        assert events[number + 1][0] == "load"  # of the block before, which trains while these are read
        assert events[number + 2 :][[what for what, _ in events[number + 2 :]].index("load")] == ("load", who)
    assert torch.equal(result(Told(), workers=2), result(Rows(), workers=1))
