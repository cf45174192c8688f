"""The lattice: exact sums, noise that is what it says, and nothing in a released number but the mechanism."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import stats

from nestegg import Budget, Group, InputError, Mechanics, plan
from nestegg.mechanism import Lattice, clipped, rounding_epsilon
from nestegg.mechanism.lattice import BITS, FAR, ROUNDINGS
from nestegg.training.blocks import Clipping
from tests.federations import ENGINES, GROUPS, federation
from tests.mechanism.test_noise import federation as wide_federation


@pytest.mark.parametrize("std", [1e-9, 0.7, 1.0, 3.0, 1e6])
def test_a_step_is_a_power_of_two_near_the_noise_over_2_to_the_22(std: float) -> None:
    step = Lattice.for_noise(std).step
    assert math.frexp(step)[0] == 0.5
    assert std * 2.0 ** -(BITS + 1) < step <= std * 2.0**-BITS


def test_noise_that_is_no_noise_is_refused() -> None:
    for std in (0.0, math.nan, math.inf, -1.0, 1e-40):
        with pytest.raises(InputError, match="the noise of a round"):
            Lattice.for_noise(std)
    for share in (0.0, math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="standard deviation"):
            Lattice(1.0).noise(share, 1, 2, np.random.default_rng(0))


def test_noise_is_whole_numbers_of_steps_with_the_right_law() -> None:
    lattice = Lattice.for_noise(3.0)
    noise = lattice.noise(3.0, 1, 100_000, np.random.default_rng(0))
    assert np.array_equal(noise, np.rint(noise))
    assert stats.kstest(noise * lattice.step / 3.0, "norm").pvalue > 1e-6
    assert len(np.unique(noise)) > 99_000  # every bit of the lattice is used


@pytest.mark.parametrize("present", [0, 1, 3, 10])
def test_the_number_of_roundings_does_not_depend_on_who_took_part(present: int) -> None:
    """On a coarse lattice, where each rounding adds a good part of the variance: ten shares, some drawn one by one."""
    lattice, rng, size = Lattice(1.0), np.random.default_rng(present), 400_000
    total = lattice.noise(1.0, 10 - present, size, rng)
    for _ in range(present):
        total += lattice.noise(1.0, 1, size, rng)
    expected = 10 * (1.0 + ROUNDINGS / 12.0)
    assert total.var() == pytest.approx(expected, rel=6.0 * math.sqrt(2.0 / size))


def exact_law(draws: int, step: Any, variance: Any) -> list[Any]:
    """Probabilities of the sum of rounded Gaussians whose variances, with those of rounding, sum to `variance`."""
    std, reach = mp.sqrt(variance / draws - step**2 / 12), int(mp.ceil((FAR + 1) / step))
    edges = [mp.ncdf((2 * j - 1) * step / (2 * std)) for j in range(-reach, 1)]
    left = [b - a for a, b in pairwise(edges)]  # cells below zero, whose tails keep their digits
    one = [*left, 1 - 2 * mp.fsum(left), *reversed(left)]
    law = one
    for _ in range(draws - 1):
        size = len(law) + len(one) - 1
        law = [
            mp.fsum(law[i - j] * one[j] for j in range(max(0, i - len(law) + 1), min(i, len(one) - 1) + 1))
            for i in range(size)
        ]
    return law


@pytest.mark.parametrize(("draws", "bits"), [(2, 3), (4, 3)])
def test_a_sum_of_rounded_shares_costs_no_more_than_is_stated(draws: int, bits: int) -> None:
    """By arithmetic with 50 digits, on a lattice coarse enough that the difference can be seen at all."""
    with mp.workdps(50):
        step = mp.mpf(2) ** -bits
        many, one = exact_law(draws, step, mp.mpf(1)), exact_law(1, step, mp.mpf(1))
        middle, centre, reach = len(many) // 2, len(one) // 2, int(FAR / step)
        ratios = [abs(mp.log(many[middle + j] / one[centre + j])) for j in range(-reach, 1)]
        worst = float(max(ratios))
    bound = rounding_epsilon(shares=draws // ROUNDINGS, coordinates=1, rounds=1, bits=bits) / 2.0  # of one world
    assert 0.2 * bound < worst <= bound


def test_what_is_released_are_images_of_lattice_points_whoever_took_part() -> None:
    """A model that starts at zero: no bit of a released number can tell which sums are possible."""
    for rates in ((1.0, 1.0), (1e-9, 1e-9)):
        world = wide_federation(rates)
        state, report = world.round(world.start())
        expected = world.plan.mean_sampling_rate[0] * world.plan.clients
        step = Lattice.for_noise(report.noise_std * expected).step
        released = state.model.numpy()
        nearest = np.rint(released.astype(np.float64) * expected / step)
        assert np.array_equal((nearest * step / expected).astype(np.float32), released)


def points(world: Any, cohort: list[int]) -> torch.Tensor:
    """What a cohort contributes to the first round, in steps."""
    state = world.start()
    norms = np.array([row.clip_norm[0] for row in world.plan.groups])[world.group]
    clipping = Clipping(norms, world.layout.layers, 2.0**-20)
    parts = [part.total.clone() for part in world.workers.sums(state.model, cohort, 1, 0.2, clipping)]
    return torch.stack(parts).sum(dim=0)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_leaving_moves_the_sum_by_one_s_own_norm_to_the_last_bit(clients: Any, engine: str, workers: int) -> None:
    made = plan(GROUPS, rounds=3, clip_norm=0.5, spending_rate=1.0)
    world = federation(clients, made, engine=engine, workers=workers, mechanics=Mechanics("per-layer", "update"))
    everybody = list(range(10))
    whole = points(world, everybody)
    assert torch.equal(whole, whole.trunc())
    assert torch.equal(whole, points(world, everybody[::-1]))  # sums of whole numbers: the order changes no bit
    for leaver in everybody:
        others = [client for client in everybody if client != leaver]
        difference = whole - points(world, others)
        assert torch.equal(difference, points(world, [leaver]))  # nobody else's contribution has changed
        norm = made.groups[int(world.group[leaver])].clip_norm[0]
        assert float(torch.linalg.vector_norm(difference)) * 2.0**-20 <= norm


def test_truncation_lets_no_norm_grow() -> None:
    rng = np.random.default_rng(1)
    for step in (2.0**-3, 2.0**-20):
        for _ in range(50):
            update = torch.from_numpy(rng.normal(size=40).astype(np.float32))
            found, length = clipped(update, 1.0, (slice(0, 30), slice(30, 40)), step)
            assert torch.equal(found, found.trunc())
            assert float(torch.linalg.vector_norm(found)) * step <= 1.0 < length


def test_a_federation_too_large_for_exact_sums_is_refused() -> None:
    made = plan([Group("a", 2**25 + 1, Budget(5.0))], rounds=2)
    with pytest.raises(InputError, match="sums are exact for up to 33554432"):
        federation([], made)
