"""Engines and workers: the same updates, whatever computes them, and nothing that they would misread."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nestegg import Budget, Evaluation, Group, InputError, LocalTraining, Performance, plan
from nestegg.mechanism import Layout
from nestegg.mechanism.randomness import Randomness
from nestegg.models import make_model
from nestegg.training import engines, kernel
from nestegg.training.blocks import Clipping, Engine, one_thread
from nestegg.training.clients import ClientsInMemory
from nestegg.training.dense import is_dense
from nestegg.training.engines import make_engine
from nestegg.training.local import batches, default_loss
from nestegg.training.waiting import Waiting
from nestegg.training.workers import Workers
from tests.federations import DENSE, ENGINES, GROUPS, TRAINING, federation, trained


@pytest.mark.parametrize("engine", DENSE, indirect=True)
@pytest.mark.parametrize("method", ["fedavg", "spend-as-you-go", "adaptive-clipping"])
def test_engines_agree(clients: Any, method: str, engine: str) -> None:
    made = plan(GROUPS, rounds=3, method=method, clip_norm=2.0)
    ends = []
    for name in ("loop", engine):
        world = federation(clients, made, engine=name)
        state = world.start()
        while state.round < made.rounds:
            state, _ = world.step(state)
        ends.append(state.model)
    assert torch.allclose(ends[0], ends[1], atol=2e-5)


@pytest.mark.parametrize("engine", DENSE, indirect=True)
@pytest.mark.parametrize(
    ("units", "sizes", "batch"),
    [
        ((5, 1), (3, 1, 7), 4),
        ((3, 16, 2), (8, 8), 8),  # whole vectors
        ((7, 33, 17, 10), (1, 30, 12, 5, 64), 9),
        ((40, 48, 1), (100,), 200),
        ((1, 1, 1, 1), (2, 9), 1),
        ((24, 3), (13, 40), 7),  # softmax regression
    ],
)
@pytest.mark.parametrize("between", [nn.ReLU, nn.Tanh])
def test_engines_agree_on_any_widths(units: Any, sizes: Any, batch: int, between: type[nn.Module], engine: str) -> None:
    torch.manual_seed(2)
    layers = [layer for a, b in pairwise(units) for layer in (nn.Linear(a, b), between())]
    model = nn.Sequential(*layers[:-1])
    clients = [(torch.randn(n, units[0]), torch.randint(0, max(units[-1], 2), (n,))) for n in sizes]
    training, randomness = LocalTraining(3, batch, 0.1), Randomness(1, True)
    start = Layout.of(model).flatten(model)
    parts = (model, ClientsInMemory(clients), training, randomness)
    loop, dense = (make_engine(Performance(name), *parts)[0] for name in ("loop", engine))
    together = sorted(range(len(sizes)), key=lambda n: -sizes[n])
    updates = dense.train_block(start, together, 4, 0.1)
    for client, update in zip(together, updates, strict=True):
        assert torch.allclose(update, loop.train_block(start, [client], 4, 0.1)[0], atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_workers_change_no_bit(clients: Any, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestegg.training.dense._CLIENTS", 2)  # several blocks, also of few clients
    made = plan(GROUPS, rounds=3, clip_norm=2.0, method="adaptive-clipping")
    ends = []
    for workers in (1, 2, 5):
        world = federation(clients, made, engine=engine, workers=workers)
        state = world.start()
        while state.round < made.rounds:
            state, _ = world.step(state)
        ends.append(state)
    assert ends[0].model.equal(ends[1].model)
    assert ends[0].model.equal(ends[2].model)
    assert ends[0].clip_norm == ends[1].clip_norm == ends[2].clip_norm != 2.0


CLIPPING = Clipping(np.full(10, np.inf), None, 0.0)
SHAKY = LocalTraining(epochs=30, batch_size=8, learning_rate=0.5)  # makes much of a difference in the last bit


class Remembered:
    """An engine that gives back what clients did when they were alone."""

    def __init__(self, engine: Engine, alone: list[torch.Tensor]) -> None:
        self.instruction_set: str | None = None
        self.name, self.blocks, self.clients, self.alone = "remembered", engine.blocks, engine.clients, alone

    def train_block(self, model: torch.Tensor, block: list[int], round_: int, rate: float) -> torch.Tensor:
        return torch.stack([self.alone[client] for client in block])


@pytest.mark.parametrize("kind", [*ENGINES, "not compiled"])
def test_what_a_client_contributes_does_not_depend_on_the_others(
    clients: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "not compiled":
        monkeypatch.setattr(kernel, "load", lambda asked=None: None)
    elif kind != "loop":
        monkeypatch.setenv(kernel.VARIABLE, kind)
    monkeypatch.setattr("nestegg.training.dense._CLIENTS", 3)  # several blocks
    made, name = plan(GROUPS, rounds=3), "loop" if kind == "loop" else "auto"
    world = federation(clients, made, engine=name, local=SHAKY)
    start, engine, everybody = world.start().model, world.engine, list(range(len(clients)))
    cohorts = [everybody, everybody[1:], [7, 2]]
    with one_thread():
        alone = [engine.train_block(start, [client], 1, 0.5)[0].clone() for client in everybody]
        assert torch.isfinite(torch.stack(alone)).all()
        for block in (block for cohort in cohorts for block in engine.blocks(cohort)):
            for client, update in zip(block, engine.train_block(start, block, 1, 0.5), strict=True):
                assert update.equal(alone[client])
    for workers in (1, 2):
        shared = federation(clients, made, engine=name, local=SHAKY, workers=workers).workers
        remembered = Workers(Remembered(engine, alone), 1, len(start), Waiting(1, 1))
        for cohort in cohorts[1:]:
            here, there = (who.sums(start, cohort, 1, 0.5, CLIPPING) for who in (shared, remembered))
            for part, expected in zip(here, there, strict=True):
                assert np.array_equal(part.total, expected.total)


@pytest.mark.parametrize("engine", DENSE, indirect=True)
def test_large_networks_are_trained_by_the_loop_unless_asked_otherwise(
    clients: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(GROUPS, rounds=3)
    monkeypatch.setitem(engines._LARGEST, str(kernel.chosen()), 2409)  # one less than there are
    large = federation(clients, made)
    assert (large.engine.name, large.why) == ("loop", "the network is so large that torch is faster")
    assert federation(clients, made, engine=engine).engine.name == "dense"
    monkeypatch.setitem(engines._LARGEST, str(kernel.chosen()), 2410)
    assert federation(clients, made).engine.name == "dense"


def test_without_a_kernel_there_is_the_loop(clients: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(GROUPS, rounds=3)
    monkeypatch.setenv(kernel.VARIABLE, "none")
    assert federation(clients, made).why == "NESTEGG_KERNEL is 'none'"
    monkeypatch.delenv(kernel.VARIABLE)
    monkeypatch.setattr(kernel, "load", lambda asked=None: None)
    world = federation(clients, made)
    assert (world.engine.name, world.engine.instruction_set) == ("loop", None)
    assert world.why == "its kernel was not compiled on installation, for lack of a C compiler"
    with pytest.raises(InputError, match="engine = 'dense' cannot be used: its kernel was not compiled"):
        federation(clients, made, engine="dense")


def test_other_devices_take_deterministic_algorithms_and_are_called_untested() -> None:
    model = nn.Sequential(nn.Linear(4, 2)).to("meta")
    clients = [(torch.zeros(6, 4, device="meta"), torch.zeros(6, dtype=torch.long, device="meta"))]
    seen = []

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return nn.functional.cross_entropy(outputs, labels)

    for given, reason in ((default_loss, "the device is 'meta' and not a CPU"), (loss, "the loss is your own")):
        parts = (model, ClientsInMemory(clients, "meta"), replace(TRAINING, loss=given), Randomness(1, True))
        engine, why = make_engine(Performance(device="meta"), *parts)
        assert (engine.name, why) == ("loop", f"{reason}; untested on such devices")
        engine.train_block(torch.zeros(10, device="meta"), [0], 1, 0.1)
    assert seen
    assert all(seen)
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(InputError, match="engine = 'dense' cannot be used: the loss is your own"):
        make_engine(Performance("dense", device="meta"), *parts)


def test_a_round_that_is_left_early_leaves_nothing_behind(clients: Any) -> None:
    world = federation(clients, plan(GROUPS, rounds=3), engine="loop", workers=2)
    start = world.start().model
    next(world.workers.sums(start, [3, 1, 2, 0], 1, 0.1, CLIPPING))  # and the others are never asked for
    again = [part.total.clone() for part in world.workers.sums(start, [0, 1, 2, 3], 1, 0.1, CLIPPING)]
    alone = federation(clients, plan(GROUPS, rounds=3), engine="loop", workers=1)
    expected = [part.total.clone() for part in alone.workers.sums(start, [0, 1, 2, 3], 1, 0.1, CLIPPING)]
    assert torch.equal(torch.stack(again), torch.stack(expected))


def test_a_worker_that_fails_is_named(clients: Any) -> None:
    world = federation(clients, plan(GROUPS, rounds=3), engine="loop", workers=2)
    start = world.start().model
    world.engine.train_block = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
    with pytest.raises(InputError, match="a worker process failed: ZeroDivisionError"):
        list(world.workers.sums(start, [0, 1], 1, 0.1, CLIPPING))
    with pytest.raises(InputError, match="failed earlier"):  # and never an answer to an older question
        list(world.workers.sums(start, [0, 2], 2, 0.1, CLIPPING))
    killed = federation(clients, plan(GROUPS, rounds=3), engine="loop", workers=2)
    list(killed.workers.sums(start, [0, 2], 1, 0.1, CLIPPING))
    last = max(multiprocessing.active_children(), key=lambda child: child.pid or 0)
    last.kill()
    last.join()
    with pytest.raises(InputError, match="it was killed"):
        list(killed.workers.sums(start, [0, 2, 3, 4], 1, 0.1, CLIPPING))


def test_the_choice_of_engine_and_workers_is_told(clients: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(GROUPS, rounds=3)
    small = federation(clients, made)
    if DENSE:
        assert (small.engine.name, small.workers.count) == ("dense", 1)  # rounds of milliseconds
        assert small.why == f"linear layers only, by the compiled kernel for {DENSE[0]}"
        assert small.engine.instruction_set == DENSE[0]
    monkeypatch.setattr("nestegg.training.performance._LONG", 1e-6)
    assert federation(clients, made, "cnn").workers.count == len(os.sched_getaffinity(0))
    assert federation(clients, made, "mlp").workers.count == len(os.sched_getaffinity(0))
    assert "more than linear layers" in federation(clients, made, "cnn").why
    assert federation(clients, made, engine="loop", workers=3).why == "as asked for"
    own = federation(clients, made, loss=lambda outputs, labels: nn.functional.cross_entropy(outputs, labels))
    assert (own.engine.name, own.why) == ("loop", "the loss is your own")
    with pytest.raises(InputError, match="workers = 0 must be"):
        federation(clients, made, workers=0)


def test_pooling_before_the_rectifier_changes_no_result() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 1, 8, 8, generator=generator)
    x[:, :, :4] = 0.0  # ties, and pools in which nothing is positive
    clients = [(x, torch.randint(0, 10, (50,), generator=generator))]
    model = make_model("cnn", torch.Size((1, 8, 8)), 10, seed=1)
    world = federation(clients, plan([Group("g", 1, Budget(9.0))], 2), "cnn", engine="loop", local=TRAINING)
    assert not isinstance(world.engine.model[1], nn.ReLU)  # type: ignore[attr-defined]
    with torch.no_grad():
        outputs = model(x)
    found = world.measured(world.start(), Evaluation(*clients[0]))
    assert found.accuracy == pytest.approx(100.0 * float((outputs.argmax(1) == clients[0][1]).float().mean()))
    assert found.loss == pytest.approx(float(nn.functional.cross_entropy(outputs, clients[0][1])), rel=1e-5)
    (ours,) = world.engine.train_block(world.start().model, [0], 1, 0.2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for batch in batches(50, TRAINING, world.randomness, 1, 0):
        optimiser.zero_grad()
        images = x[batch].contiguous(memory_format=torch.channels_last)
        nn.functional.cross_entropy(model(images), clients[0][1][batch]).backward()
        optimiser.step()
    expected = world.layout.flatten(model) - world.start().model
    assert torch.allclose(ours, expected, atol=1e-6)  # its second convolution is the kernel's, with another rounding


def test_engines_agree_on_one_output() -> None:
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.randn(n, 5, generator=generator), torch.randint(0, 2, (n,), generator=generator)) for n in (3, 40, 7)
    ]
    made = plan([Group("g", 3, Budget(50.0))], rounds=2)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    both = [trained(made, model, clients, engine=e, reproducible=True)[0] for e in ("loop", "dense")]
    for a, b in zip(both[0].parameters(), both[1].parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


class Scaled(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return output * 2.0


def unusual_models() -> dict[str, nn.Module]:
    """Models that look dense and are not: the kernel would compute something else, or read what is not there."""
    tied = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    tied[2].weight = tied[0].weight
    twice = nn.Linear(8, 8)
    hooked = nn.Sequential(nn.Linear(8, 8))
    hooked[0].register_forward_hook(lambda _, __, output: output * 2.0)
    return {
        "tied weights": tied,
        "a layer used twice": nn.Sequential(twice, nn.ReLU(), twice),
        "its own forward": Scaled(nn.Linear(8, 8)),
        "a hook": hooked,
        "no bias": nn.Sequential(nn.Linear(8, 8, bias=False)),
        "nothing between": nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)),
        "two kinds between": nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)),
        "a tangent at the end": nn.Sequential(nn.Linear(8, 8), nn.Tanh()),
        "flattened later": nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 8)),
        "frozen": nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, 8)),
    }


@pytest.mark.parametrize("kind", unusual_models())
def test_models_that_only_look_dense_are_trained_as_they_are(kind: str) -> None:
    model = unusual_models()[kind]
    clients = [(torch.randn(12, 8), torch.randint(0, 8, (12,), dtype=torch.int32))]
    parts = (model, ClientsInMemory(clients), TRAINING, Randomness(1, True))
    engine, why = make_engine(Performance(), *parts)
    assert engine.name == "loop"
    assert why == "the model is more than linear layers with rectifiers, or with hyperbolic tangents, between them"
    with pytest.raises(InputError, match="engine = 'dense' cannot be used"):
        make_engine(Performance("dense"), *parts)
    start = Layout.of(model).flatten(model)
    assert torch.isfinite(engine.train_block(start, [0], 1, 0.1)).all()


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(7, 8)), nn.Sequential(nn.Linear(8, 8)).double()])
def test_the_dense_engine_takes_no_model_of_another_width_or_precision(model: nn.Module) -> None:
    assert not is_dense(model, torch.Size([8]))
    assert not is_dense(nn.Sequential(nn.Linear(8, 8)), torch.Size([3, 8]))
    assert is_dense(nn.Sequential(nn.Flatten(), nn.Linear(24, 8)), torch.Size([3, 8]))


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_any_batch_size_is_the_whole_client_at_most(clients: Any, engine: str) -> None:
    made = plan(GROUPS, rounds=3)
    sizes = [len(y) for _, y in clients]
    ends = []
    for batch in (max(sizes), 10**9, 2**70):
        world = federation(clients, made, engine=engine, local=LocalTraining(2, batch, 0.1))
        ends.append(world.round(world.start())[0].model)
    assert ends[0].equal(ends[1])
    assert ends[0].equal(ends[2])


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_client_with_broken_data_counts_as_nobody(clients: Any, engine: str) -> None:
    made = plan(GROUPS, rounds=3, spending_rate=1.0)
    broken = [(torch.full_like(clients[0][0], float("nan")), clients[0][1]), *clients[1:]]
    world = federation(broken, made, engine=engine)
    world.cohort = lambda round_: list(range(10))  # type: ignore[method-assign]
    state, report = world.round(world.start())
    assert torch.isfinite(state.model).all()
    assert report.simulation_only_broken_updates == 1
