"""The mechanism: clipping that holds, and statistics of the noise as the loop really produces it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from nestegg import Budget, Group, InputError, plan
from nestegg.mechanism import Layout, block_sum, clipped, clipped_sum, share_std
from nestegg.mechanism.randomness import Randomness
from nestegg.models import make_model
from nestegg.training import Federation, LocalTraining, Mechanics
from tests.federations import assembled

SIZE = 20_000  # coordinates of the vector whose noise is looked at


class Wide(nn.Module):
    """A model with many parameters whose gradient is zero: what is left of a round is its noise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIZE // 2, 2, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(x)
        return output * 0.0


def federation(rates: tuple[float, float], seed: int = 0, **changes: Any) -> Federation:
    groups = [
        Group("a", 3, Budget(5.0), saving_rate=rates[0], transition=4),
        Group("b", 2, Budget(20.0), saving_rate=rates[1], transition=4),
    ]
    made = plan(groups, rounds=4, spending_rate=max(rates), clip_norm=3.0)
    clients = [(torch.zeros(2, SIZE // 2), torch.tensor([0, 1]))] * 5
    given = {"mechanics": Mechanics(clip_unit="update"), "randomness": Randomness(seed, reproducible=True), **changes}
    return assembled(made, Wide(), clients, local=LocalTraining(learning_rate=0.5), **given)


def noise_of(world: Federation, round_: int = 1) -> np.ndarray:
    """The noise of a round in units of c σ^t, from the released model alone."""
    state = world.start()
    for _ in range(round_):
        before, (state, _) = state, world.round(state)
    t = round_ - 1
    scale = world.plan.clip_norm * world.plan.round_noise_multiplier[t]
    total = (state.model - before.model) * world.plan.mean_sampling_rate[t] * world.plan.clients
    return (total / scale).numpy().astype(np.float64)


@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.5, 0.7), (1e-9, 1e-9)], ids=["full", "partial", "empty"])
@pytest.mark.parametrize("reproducible", [True, False])
def test_total_noise_is_the_plan_s_whoever_was_sampled(rates: tuple[float, float], reproducible: bool) -> None:
    world = federation(rates, randomness=Randomness(1, reproducible))
    noise = noise_of(world)
    assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert noise.var() == pytest.approx(1.0, abs=6.0 * np.sqrt(2.0 / SIZE))
    if rates[0] < 1e-6:
        assert world.cohort(1) == []


@pytest.mark.parametrize("lost", [1, 3, 5])
def test_total_noise_is_the_plan_s_when_sampled_clients_drop_out(lost: int) -> None:
    world = federation((1.0, 1.0))
    everybody = world.workers.sums

    def dropping(model: Any, cohort: Any, *more: Any) -> Any:
        return everybody(model, cohort[lost:], *more)

    world.workers.sums = dropping  # type: ignore[method-assign, assignment]
    noise = noise_of(world)
    assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert noise.var() == pytest.approx(1.0, abs=6.0 * np.sqrt(2.0 / SIZE))


def test_noise_is_independent_between_rounds_clients_and_seeds() -> None:
    samples = [noise_of(federation((0.5, 0.7), seed), round_) for seed in (1, 2) for round_ in (1, 2, 3)]
    correlation = np.corrcoef(samples)
    off = correlation[~np.eye(len(samples), dtype=bool)]
    assert np.abs(off).max() < 6.0 / np.sqrt(SIZE)
    half = samples[0][: SIZE // 2], samples[0][SIZE // 2 :]
    assert abs(np.corrcoef(half)[0, 1]) < 6.0 / np.sqrt(SIZE // 2)


def test_colluders_cannot_take_enough_noise_away() -> None:
    """The shares of N − k clients alone have the variance the plan promises."""
    world = federation((1.0, 1.0), mechanics=Mechanics(clip_unit="update", colluders=2))
    noise = noise_of(world)
    assert noise.var() == pytest.approx(5.0 / 3.0, rel=0.07)
    assert 3 * share_std(1.0, 5, 2) ** 2 == pytest.approx(1.0)
    with pytest.raises(InputError, match="colluders = 5 must be fewer than the 5 clients"):
        federation((1.0, 1.0), mechanics=Mechanics(colluders=5))


def test_secret_randomness_differs_and_public_randomness_repeats() -> None:
    secret = [noise_of(federation((0.5, 0.7), randomness=Randomness(1, reproducible=False))) for _ in range(2)]
    assert abs(np.corrcoef(secret)[0, 1]) < 6.0 / np.sqrt(SIZE)
    repeated = [noise_of(federation((0.5, 0.7), seed=4)) for _ in range(2)]
    assert np.array_equal(repeated[0], repeated[1])


def test_sampling_is_poisson_with_every_client_s_own_rate() -> None:
    counts, sizes, draws = np.zeros(5), [], 6000
    for seed in range(draws):
        cohort = federation_cohort(seed)
        counts[cohort] += 1
        sizes.append(len(cohort))
    expected = np.array([0.2, 0.2, 0.2, 0.6, 0.6])
    for group in (slice(0, 3), slice(3, 5)):  # 0.015 and 0.022: a rate that is 0.03 too high is noticed
        rate, trials = expected[group][0], draws * len(expected[group])
        assert counts[group].sum() / trials == pytest.approx(rate, abs=5.0 * np.sqrt(rate * (1.0 - rate) / trials))
    assert np.abs(counts / draws - expected).max() < 5.0 * np.sqrt(0.25 / draws)
    assert np.var(sizes) == pytest.approx((expected * (1.0 - expected)).sum(), rel=0.2)
    assert min(sizes) == 0


_WORLD = None


def federation_cohort(seed: int) -> list[int]:
    global _WORLD
    _WORLD = _WORLD or federation((0.2, 0.6))
    _WORLD.randomness = Randomness(seed, reproducible=True)
    return _WORLD.cohort(1)


LARGEST = float(np.finfo(np.float32).max)
UPDATES = st.lists(st.floats(-LARGEST, LARGEST, width=32), min_size=6, max_size=6)


@settings(deadline=None)
@given(row=UPDATES, norm=st.floats(1e-12, 1e3), per_layer=st.booleans())
def test_a_clipped_update_is_within_its_norm_and_keeps_its_direction(
    row: list[float], norm: float, per_layer: bool
) -> None:
    update = torch.tensor(row)
    layers = (slice(0, 4), slice(4, 6)) if per_layer else None
    found, length = clipped(update, norm, layers)
    assert length == pytest.approx(float(torch.linalg.vector_norm(update.double())))
    assert float(torch.linalg.vector_norm(found)) <= norm
    if length <= norm * 0.999 / np.sqrt(2.0):
        assert torch.equal(found, update.double())
    assert torch.all((found == 0) | (torch.sign(found) == torch.sign(update)))


def test_per_layer_clipping_clips_each_layer_to_its_part() -> None:
    layers, part = (slice(0, 2), slice(2, 3)), 2.0 / np.sqrt(2.0)
    found, length = clipped(torch.tensor([3.0, 4.0, 0.1]), 2.0, layers)
    assert length == pytest.approx(25.01**0.5)
    assert found.tolist() == pytest.approx([0.6 * part, 0.8 * part, 0.1], rel=1e-5)  # the small layer is left alone
    found, length = clipped(torch.tensor([0.0, 0.0, 50.0]), 2.0, layers)
    assert found.tolist() == pytest.approx([0.0, 0.0, part], rel=1e-5)


def test_broken_updates_count_as_zero() -> None:
    updates = torch.tensor([[np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0], [3.0, 4.0]])
    total, bits, broken = block_sum(*clipped_sum(updates, np.ones(4)), np.ones(4))
    assert (bits, broken) == (1 - 4 / 2, 2)  # only the zero is below its norm
    assert total.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)


def test_a_layer_is_a_module_that_owns_parameters() -> None:
    model = make_model("cnn", torch.Size((1, 28, 28)), 10, seed=0)
    layout = Layout.of(model)
    assert layout.size == 1_663_370
    assert len(layout.layers) == 4
    vector = layout.flatten(model)
    layout.load(model, vector * 2.0)
    assert torch.equal(layout.flatten(model), vector * 2.0)


def test_frozen_parameters_and_buffers_are_never_sent() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model[0].weight.requires_grad = False
    assert Layout.of(model).names == ("0.bias", "1.weight", "1.bias", "2.weight", "2.bias")


def test_the_mechanism_fails_closed() -> None:
    with pytest.raises(ValueError, match="clip norm"):
        clipped(torch.ones(2), float("nan"))


def test_tied_parameters_are_one() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    assert Layout.of(nn.Sequential(first, second)).size == 9 + 3 + 3


def test_orders_are_uniform_and_every_client_s_own() -> None:
    randomness = Randomness(3, reproducible=False)
    orders = randomness.orders(1, range(6000), [4] * 6000, 2)
    counts = np.unique(orders.reshape(-1, 4) @ [1000, 100, 10, 1], return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-6
    first, second = orders[:, 0], orders[:, 1]
    assert stats.chisquare(np.bincount(4 * first[:, 0] + second[:, 0])).pvalue > 1e-6  # epochs are independent
    mixed = randomness.orders(1, [7, 5, 11], [2, 9, 4], 2)
    assert np.array_equal(mixed[2, :, :4], orders[11])  # whoever else is there
    assert np.array_equal(np.sort(mixed[1]), np.tile(np.arange(9), (2, 1)))
    assert not np.array_equal(orders, randomness.orders(2, range(6000), [4] * 6000, 2))
    assert not np.array_equal(orders, Randomness(4, False).orders(1, range(6000), [4] * 6000, 2))
