"""Loading that waits: more workers are started, and nothing of it changes a result."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nestegg import Budget, Federation, Group, LocalTraining, Mechanics, Performance, Randomness, plan
from nestegg.training import loop, performance, waiting
from nestegg.training.waiting import Moment, Waiting

NAMES = [f"client-{number}" for number in range(24)]
PLAN = plan([Group("all", NAMES, Budget(8.0))], rounds=3, spending_rate=1.0)
ENGINES = ["loop", "dense"]


@pytest.mark.parametrize(
    ("waited", "now", "expected"),
    [
        (0.0, 2, 2),
        (0.33, 2, 2),  # not worth new processes
        (0.5, 2, 4),  # two take turns on a core
        (2 / 3, 2, 6),
        (0.99, 2, 8),  # no more than there may be
        (7.0, 2, 8),  # clocks are not exact
        (0.5, 1, 4),  # also where rounds seemed too short for processes
        (0.5, 5, 5),  # never fewer
    ],
)
def test_as_many_workers_as_keep_the_cores_busy(waited: float, now: int, expected: int) -> None:
    watched = Waiting(cores=2, most=8)
    watched.add(waited / 2, 0.5)
    watched.add(waited / 2, 0.5)
    assert watched.workers(now) == expected


def test_it_is_decided_once_and_not_too_early() -> None:
    watched = Waiting(cores=2, most=8)
    watched.add(0.3, 0.4)
    assert watched.workers(2) == 2
    watched.add(0.1, 0.1)
    assert watched.workers(2) == 8
    watched.add(9.0, 9.0)
    assert watched.workers(2) == 2  # the caches of workers are worth more than a better number


def test_to_lose_the_core_is_not_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Moment(time=10.0, worked=3.0, waits=7)
    for waits, expected in ((7, 0.0), (8, 1.5)):
        now = Moment(time=12.0, worked=3.5, waits=waits)
        monkeypatch.setattr(Moment, "now", lambda now=now: now)
        assert before.waited() == expected


def test_a_thread_that_sleeps_waits() -> None:
    before = Moment.now()
    time.sleep(0.02)  # which takes no less than that
    assert before.waited() > 0.015


def drawn(name: str, log: Path | None = None) -> tuple[Tensor, Tensor]:
    """Data that draws from torch's own generator; one client has none that can be read."""
    if log is not None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
    if name == NAMES[5]:
        raise OSError("disk gone")
    return torch.randn(4 + len(name) % 3, 3), torch.randint(0, 2, (4 + len(name) % 3,))


def federation(engine: str, workers: int | None, log: Path | None = None) -> Federation:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    return Federation(
        PLAN,
        model,
        {name: (lambda name=name: drawn(name, log)) for name in NAMES},
        local=LocalTraining(epochs=2, batch_size=4),
        mechanics=Mechanics(randomness=Randomness(3, reproducible=True)),
        performance=Performance(engine, workers),
    )


def rounds(world: Federation) -> tuple[Tensor, list[int]]:
    """The last model, and how many workers there are after each round."""
    state, counts = world.start(), []
    for _ in range(PLAN.rounds):
        state, report = world.step(state)
        assert report.simulation_only_broken_updates == 1
        counts.append(world.workers.count)
    return state.model, counts


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which every load waits for seconds, on a machine with two cores."""
    ticks = count(step=10)
    monkeypatch.setattr(Moment, "now", lambda: Moment(next(ticks), 0.0, next(ticks)))
    monkeypatch.setattr(waiting, "_TRIAL", 0.0)
    for module in (loop, performance):
        monkeypatch.setattr(module, "cores", lambda: 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_more_workers_where_loading_waits_change_no_bit(engine: str, tmp_path: Path, slow: None) -> None:
    expected, alone = rounds(federation(engine, 1))
    world = federation(engine, None, tmp_path / "log")
    (tmp_path / "log").unlink()  # of the first clients, which were asked for their shape
    found, grown = rounds(world)
    assert torch.equal(found, expected)
    assert alone == [1, 1, 1]  # as asked for
    assert grown == [8, 8, 8]
    processes = set((tmp_path / "log").read_text().split())
    assert 2 < len(processes) <= 10  # two at first; then eight, as far as there are blocks for them
    assert str(os.getpid()) not in processes


def test_short_rounds_that_wait_leave_this_process(slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def once(*_: Any, **__: Any) -> int:
        return 1

    expected, _ = rounds(federation("loop", 1))
    monkeypatch.setattr(Performance, "worker_count", once)
    found, counts = rounds(federation("loop", None))
    assert torch.equal(found, expected)
    assert counts == [8, 8, 8]


def in_a_pool() -> SimpleNamespace:
    return SimpleNamespace(daemon=True)


def test_no_more_processes_where_data_is_in_memory_or_forks_are_not_safe(
    slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {name: (torch.ones(4, 3), torch.tensor([0, 1, 1, 0])) for name in NAMES}
    world = Federation(PLAN, nn.Sequential(nn.Linear(3, 2)), data, performance=Performance("loop"))
    state, before = world.start(), world.workers.count
    world.step(state)
    assert world.workers.count == before
    for where, value in (("sys.platform", "darwin"), (f"{performance.__name__}.current_process", in_a_pool)):
        with monkeypatch.context() as patch:
            patch.setattr(where, value)
            assert rounds(federation("loop", None))[1] == [1, 1, 1]
