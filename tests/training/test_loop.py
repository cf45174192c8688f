"""The loop: equal to the paper's algorithms written out in NumPy, whatever the engine, and unbreakable by clients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nestegg import Budget, Group, InputError, LocalTraining, Mechanics, plan, train
from nestegg.mechanism import Layout
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.models import make_model
from nestegg.training import AdaptiveClipping, Federation
from nestegg.training.local import batches
from nestegg.training.performance import bf16_works
from tests.federations import ENGINES, GROUPS, TRAINING, assembled, federation, trained


def paper_round(world: Federation, theta: np.ndarray, t: int, clients: Any, unit: float, rate: float) -> np.ndarray:
    """Algorithm 2 and ClientUpdate for softmax regression, client by client, with the same random draws."""
    made, randomness = world.plan, world.randomness
    n_clients, size = made.clients, theta.size
    group_of = [row for row in made.groups for _ in range(row.group.clients)]
    draws = randomness.stream(Purpose.COHORT, t).random(n_clients)
    total, variance = np.zeros(size), 0.0
    sampled = 0
    for n, row in enumerate(group_of):
        c, sigma = row.clip_norm[t - 1] * unit, row.noise_multiplier[t - 1]
        if draws[n] >= row.sampling_rate[t - 1]:  # line 8: the server adds the shares of those not sampled
            continue
        sampled += 1
        x, y = (part.numpy().astype(np.float64) for part in clients[n])
        x, y = x.reshape(len(x), -1), y.astype(int)
        weight, bias = theta[:640].reshape(10, 64).copy(), theta[640:].copy()
        velocity = [np.zeros_like(weight), np.zeros_like(bias)]
        for batch in batches(len(y), world.local, randomness, t, n):
            logits = x[batch] @ weight.T + bias
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(batch)), y[batch]] -= 1.0
            gradients = [p.T @ x[batch] / len(batch), p.mean(axis=0)]
            velocity = [0.9 * v + g for v, g in zip(velocity, gradients, strict=True)]
            weight, bias = weight - rate * velocity[0], bias - rate * velocity[1]
        update = np.concatenate([weight.ravel(), bias]) - theta  # line 8
        update *= min(1.0, c / np.linalg.norm(update))  # line 9
        total += update
        variance += (c * sigma) ** 2 / n_clients  # line 10
    std = made.clip_norm * unit * made.round_noise_multiplier[t - 1]
    variance += std**2 * (n_clients - sampled) / n_clients
    # All shares are independent and normal, so a simulation may draw what they add up to, in two halves.
    stream = randomness.stream(Purpose.NOISE, t)
    total += np.sqrt(variance / 2.0) * (stream.standard_normal(size) + stream.standard_normal(size))
    return theta + total / (made.mean_sampling_rate[t - 1] * n_clients)  # line 9 of the server


@pytest.mark.parametrize("clip_unit", ["update", "gradient"])
@pytest.mark.parametrize("clipping", ["flat", "per-layer"])  # one layer: both are the same
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_rounds_equal_the_paper_written_out(clients: Any, engine: str, clip_unit: str, clipping: str) -> None:
    made = plan(GROUPS, rounds=4, clip_norm=2.0)
    world = federation(clients, made, "linear", mechanics=Mechanics(clipping, clip_unit), engine=engine)
    state = world.start()
    theta = state.model.numpy().astype(np.float64)
    for t in range(1, 5):
        rate = world.local.rate(t, 4)
        state, report = world.round(state)
        theta = paper_round(world, theta, t, clients, rate if clip_unit == "gradient" else 1.0, rate)
        assert state.model.numpy() == pytest.approx(theta, abs=2e-5)
        assert report.simulation_only_cohort_size == len(world.cohort(t))


def test_without_privacy_and_with_everybody_it_is_fedavg(clients: Any) -> None:
    made = plan(GROUPS, rounds=3, method="fedavg", spending_rate=1.0)
    world = federation(clients, made)
    state, _ = world.round(world.start())
    layout = world.layout
    expected = torch.zeros(layout.size)
    for n, (x, y) in enumerate(clients):
        model = make_model("mlp", torch.Size((1, 8, 8)), 10, seed=1)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        for batch in batches(len(y), TRAINING, world.randomness, 1, n):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
        expected += layout.flatten(model) / len(clients)
    assert torch.allclose(state.model, expected, atol=1e-5)


def test_an_empty_cohort_releases_noise_only(clients: Any) -> None:
    made = plan([Group("a", 10, Budget(5.0), saving_rate=1e-9, transition=2)], rounds=2)
    world = federation(clients, made)
    state, report = world.round(world.start())
    assert report.simulation_only_cohort_size == 0
    assert torch.isfinite(state.model).all()
    assert not torch.equal(state.model, world.start().model)


def test_who_has_withdrawn_takes_no_part_and_the_noise_stays_whole(clients: Any) -> None:
    """To the bit the round in which these clients sent nothing usable: same cohort, same noise, same denominator."""
    made, gone = plan(GROUPS, rounds=3), [1, 7]
    lost = [(x * torch.nan if i in gone else x, y) for i, (x, y) in enumerate(clients)]
    here, there = (federation(given, made) for given in (clients, lost))
    for world in (here, there):
        world.cohort = lambda round_: list(range(10))  # type: ignore[method-assign]
    without, _ = here.round(here.start(), absent=gone)
    assert torch.equal(without.model, there.round(there.start())[0].model)
    assert not torch.equal(without.model, here.round(here.start())[0].model)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, 0.0])
def test_a_bad_client_neither_breaks_a_round_nor_moves_it_further_than_its_norm(clients: Any, value: float) -> None:
    made = plan(GROUPS, rounds=1 + 2, spending_rate=1.0, clip_norm=1.0)
    ends = []
    for poison in (False, True):
        world = federation(clients, made, mechanics=Mechanics("flat", "update"), engine="loop")
        honest = world.engine.train_block

        def poisoned(model: Any, block: Any, *more: Any, honest: Any = honest, poison: bool = poison) -> Any:
            updates = honest(model, block, *more)
            return torch.full_like(updates, value) if poison and 0 in block else updates

        world.engine.train_block = poisoned  # type: ignore[method-assign, assignment]
        world.cohort = lambda round_: list(range(10))  # type: ignore[method-assign]
        state, report = world.round(world.start())
        ends.append(state.model)
        assert report.simulation_only_broken_updates == int(poison and not np.isfinite(value))
    moved = torch.linalg.vector_norm(ends[0] - ends[1]) * made.mean_sampling_rate[0] * 10
    assert torch.isfinite(ends[1]).all()
    assert moved <= 2.0 * made.groups[0].clip_norm[0] + 1e-4


@pytest.mark.parametrize("start", [0.01, 100.0])
def test_adaptive_clipping_converges_to_the_quantile_from_both_sides(start: float) -> None:
    """(A widely used framework has the sign of this rule inverted.)"""
    rng = np.random.default_rng(0)
    norms = np.exp(rng.normal(0.0, 0.5, 200))
    controller = AdaptiveClipping(quantile=0.7, step=0.2, bit_noise=2.0)
    norm = start
    history = []
    for _ in range(400):
        bits = float(((norms <= norm) - 0.5).sum())
        norm = controller.next_norm(norm, bits, 1.0, 200.0, rng)
        history.append(norm)
    assert np.median(history[-100:]) == pytest.approx(np.quantile(norms, 0.7), rel=0.05)


def test_adaptive_clipping_splits_its_noise_exactly() -> None:
    """Updates with σ and bits of sensitivity ½ with σ_b are one Gaussian mechanism with the plan's σ̄."""
    controller = AdaptiveClipping(bit_noise=3.0)
    sigma = controller.noise_of_updates(2.0, 100.0)
    assert 1.0 / sigma**2 + 0.5**2 / 3.0**2 == pytest.approx(1.0 / 2.0**2)
    with pytest.raises(InputError, match="bit_noise = 1 is too little"):
        AdaptiveClipping(bit_noise=1.0).noise_of_updates(2.0, 100.0)


@pytest.mark.parametrize("bit_noise", [None, 7.0])
def test_the_bits_carry_the_noise_that_is_paid_for(clients: Any, bit_noise: float | None) -> None:
    """From the released norms alone: everybody is below a huge norm, so what varies is the noise of the bits."""
    made = plan([Group("a", 10, Budget(5.0))], rounds=3, method="adaptive-clipping", spending_rate=1.0, clip_norm=1e6)
    controller = AdaptiveClipping(bit_noise=bit_noise)
    world = federation(clients, made, "linear", adaptive=controller)
    sigma, start, noise = made.round_noise_multiplier[0], world.start(), []
    for seed in range(400):
        world.randomness = Randomness(seed, reproducible=True)
        state, _ = world.round(start)
        share = controller.quantile - math.log(state.clip_norm / start.clip_norm) / controller.step
        noise.append((share - 0.5) * 10.0 - 5.0)
    promised = controller.noise_of_bits(sigma, 10.0)
    assert np.std(noise) == pytest.approx(promised, rel=6.0 / math.sqrt(2 * len(noise)))
    # Together with the updates' noise that is one release at the plan's σ.
    assert controller.noise_of_updates(sigma, 10.0) ** -2 + (0.5 / promised) ** 2 == pytest.approx(sigma**-2)


def test_the_loop_s_norm_follows_the_updates(clients: Any) -> None:
    made = plan([Group("a", 10, Budget(500.0))], rounds=30, method="adaptive-clipping", clip_norm=100.0)
    world = federation(clients, made, adaptive=AdaptiveClipping(step=0.5, bit_noise=1.0))
    state, reports = world.start(), []
    while state.round < made.rounds:
        state, report = world.step(state)
        reports.append(report)
    assert reports[-1].clip_norm / reports[-1].learning_rate < 60.0
    assert reports[0].clip_norm / reports[0].learning_rate == pytest.approx(100.0)


def test_any_module_and_any_datasets() -> None:
    class Pairs(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.full((3,), float(index)), index % 2

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(3, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.scale

    model = Own()
    made, test = plan([Group("g", 4, Budget(9.0))], 3), (torch.ones(2, 3), torch.tensor([0, 1]))
    result, reports = train(Federation(made, model, [Pairs()] * 4, test=test))
    assert [report.round for report in reports] == [1, 2, 3]
    assert isinstance(result, Own)
    assert torch.equal(model.scale, torch.zeros(3, 2))
    assert not torch.equal(result.scale, model.scale)
    assert reports[-1].accuracy == 50.0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_models_and_precisions_train(clients: Any, precision: str) -> None:
    if precision == "bf16" and not bf16_works("cpu"):
        with pytest.raises(InputError, match="precision = 'bf16' does not work"):
            federation(clients, plan(GROUPS, rounds=3), precision="bf16")
        pytest.skip("torch dies of bfloat16 on this machine")
    made = plan(GROUPS, rounds=3)
    for name in ("cnn", "resnet20", "tanh-cnn-standardised", "tanh-cnn-head"):
        training = LocalTraining(epochs=1, batch_size=64, learning_rate=0.01)
        world = federation(clients, made, name, local=training, precision=precision)
        state, _ = world.round(world.start())
        assert world.engine.name == "loop"
        assert torch.isfinite(state.model).all()


def test_what_does_not_fit_is_refused(clients: Any) -> None:
    made = plan(GROUPS, rounds=3)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    with pytest.raises(InputError, match="outputs stand for 5 labels, so a label must be one whole number from 0 to 4"):
        trained(made, wide, clients)
    with pytest.raises(InputError, match=r"model cannot take inputs of shape \(1, 8, 8\) and type torch.float32"):
        trained(made, nn.Linear(7, 10), clients)
    with pytest.raises(InputError, match=r"type torch.int64: .* If these are no tokens, make them floats"):
        trained(made, wide, [(x.long(), y) for x, y in clients])
    with pytest.raises(InputError, match="clients has 3 datasets; the plan is for 10 clients"):
        trained(made, wide, clients[:3])
    with pytest.raises(InputError, match="no trainable parameters"):
        trained(made, nn.Flatten(), clients)
    with pytest.raises(InputError, match="client 2 has another number of inputs than of labels"):
        trained(made, wide, [clients[0], (torch.empty(0, 1, 8, 8), torch.zeros(1, dtype=torch.long)), *clients[2:]])
    with pytest.raises(InputError, match="engine = 'dense' cannot be used: the model is more"):
        trained(made, make_model("cnn", torch.Size((1, 8, 8)), 10, 0), clients, engine="dense")
    assert Layout.of(wide).size == 325
    x, y = clients[0]
    for labels in (y - 20, y[:, None]):
        with pytest.raises(InputError, match=r"one whole number from 0 to 9|client 2 has data of another"):
            trained(made, nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), [(x, labels), *clients[1:]])


def test_running_statistics_are_refused(clients: Any) -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    with pytest.raises(InputError, match="model has running statistics in '1'"):
        trained(plan(GROUPS, rounds=3), model, clients)


def test_nothing_of_a_client_reaches_a_buffer_and_dropout_repeats(clients: Any) -> None:
    class Leaky(nn.Module):
        memory: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 10)
            self.drop = nn.Dropout(0.5)
            self.register_buffer("memory", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.memory += x.sum().detach()
            dropped: torch.Tensor = self.drop(self.layer(x.flatten(1)))
            return dropped

    torch.manual_seed(0)
    model = Leaky()
    ends: list[Any] = [trained(plan(GROUPS, rounds=3), model, clients, reproducible=True)[0] for _ in range(2)]
    assert torch.equal(ends[0].layer.weight, ends[1].layer.weight)
    assert float(ends[0].memory) == 0.0 == float(model.memory)


def test_a_learnt_norm_stays_a_number() -> None:
    controller = AdaptiveClipping(step=10.0, bit_noise=1e6)
    norm, rng = 1.0, np.random.default_rng(0)
    for _ in range(200):
        norm = controller.next_norm(norm, 0.0, 1.0, 2.0, rng)
        assert 0.0 < norm < float("inf")
    with pytest.raises(InputError, match="step"):
        AdaptiveClipping(step=1e6)


def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs.squeeze(-1) - targets) ** 2).mean()


class Heights(torch.utils.data.Dataset[tuple[torch.Tensor, float]]):
    """Targets that are no whole numbers."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        return torch.full((3,), float(index)), 1.5 + index


def test_targets_that_are_no_whole_numbers_are_never_cut_off() -> None:
    made = plan([Group("g", 4, Budget(9.0))], 2)
    test = (torch.ones(2, 3), torch.ones(2))
    world = assembled(made, nn.Linear(3, 1), [Heights()] * 4, test=test, loss=squared)
    assert world.clients.samples(0)[1].tolist() == [1.5, 2.5, 3.5, 4.5]
    _, report = world.step(world.start())
    assert report.accuracy is None  # of a number there is none
    assert report.loss is not None
    with pytest.raises(InputError, match="targets of a type with decimals"):
        trained(made, nn.Linear(3, 1), [Heights()] * 4)


def test_tokens_stay_whole_numbers_and_arrays_are_taken_as_they_are() -> None:
    made = plan([Group("g", 4, Budget(9.0))], 2)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 2))
    tokens = [(np.array([[1, 2, 3], [4, 5, 6]]), np.array([0, 1]))] * 4
    _, reports = trained(made, model, tokens, reproducible=True)
    assert [report.simulation_only_broken_updates for report in reports] == [0, 0]
    arrays = [(np.ones((2, 3)), np.array([0, 1]))] * 4  # of double precision, as NumPy makes them
    trained(made, nn.Linear(3, 2), arrays)
    with pytest.raises(
        InputError, match=r"model has 'weight' of type torch.float64; what is trained is of torch.float32"
    ):
        trained(made, nn.Linear(3, 2).double(), arrays)
