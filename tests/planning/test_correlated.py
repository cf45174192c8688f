"""Correlated noise beside the computed schedule: what no mechanism can undercut, and the table of docs/theory.md."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from bench.correlated import Training, root_mean_square, row
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import binom, norm

from nestegg.accounting import Array
from tests.examples import examples

THEORY = Path(__file__).parents[2] / "docs" / "theory.md"
SIZES = st.floats(0.05, 1.0)


def sensitivity(c: Array, scales: Array) -> float:
    """The most that one client moves what is released, by trying all signs; a column of scales for each cohort."""
    signs = np.array(list(product((1.0, -1.0), repeat=len(scales))))
    return max(float(np.linalg.norm((signs * column) @ c.T, axis=1).max()) for column in scales.T)


def any_strategy(seed: int, best: Array) -> Array:
    """A lower triangular C, near the best independent noise or far from it, with entries of both signs or of one."""
    rng, rounds = np.random.default_rng(seed), len(best)
    entries = np.tril(rng.normal(0.0, rng.choice([0.01, 0.1, 1.0]), (rounds, rounds)), -1)
    if rng.random() < 0.5:
        entries = np.abs(entries)
    diagonal = best * np.exp(rng.normal(0.0, rng.choice([0.0, 0.7]), rounds))
    return np.asarray((np.eye(rounds) + entries) * diagonal)


def forgetful_models(kept: list[float], clip_norms: list[float]) -> Array:
    """Each model a row: what it keeps of each round, if every round forgets the same share of all before."""
    w = np.cumprod(kept[::-1])[::-1]
    return np.asarray(np.tril(w[None, :] / w[:, None]) * np.array(clip_norms))


@examples(60)
@given(st.lists(st.tuples(st.floats(-1.0, 1.0), SIZES), min_size=1, max_size=7), st.integers(0, 2**32))
def test_no_correlated_noise_does_better_for_the_last_model(rounds: list[tuple[float, float]], seed: int) -> None:
    """Σ |w_t| c_t ≤ ‖b‖ sens(C) for every factorisation w = b C, with everybody in every round."""
    w, c = np.array(rounds).T
    strategy = any_strategy(seed, np.sqrt(np.maximum(np.abs(w), 1e-3) / c))
    b = np.linalg.solve(strategy.T, w)
    assert np.abs(w) @ c <= np.linalg.norm(b) * sensitivity(strategy, c[:, None]) * (1.0 + 1e-9) + 1e-12


@examples(60)
@given(
    st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=7),
    st.integers(1, 7),
    st.integers(0, 2**32),
)
def test_nor_for_all_models_nor_with_any_cohorts(rounds: list[tuple[float, float]], apart: int, seed: int) -> None:
    """Σ_t √M_tt ≤ ‖B‖ sens(C) / √T, whoever takes part when, if round t's mean is over those who take part."""
    models = forgetful_models(*(list(values) for values in zip(*rounds, strict=True)))
    best = np.sqrt(root_mean_square(models))
    rng, strategy = np.random.default_rng(seed), any_strategy(seed, best)
    share = rng.dirichlet(np.ones(apart))  # clients of each cohort
    takes_part = rng.random((len(models), apart)) < 0.6
    takes_part[np.arange(len(models)), rng.integers(apart, size=len(models))] = True
    scales = takes_part / (takes_part @ share)[:, None]
    noise = np.linalg.norm(models @ np.linalg.inv(strategy)) / math.sqrt(len(models))
    least = root_mean_square(models).sum()
    assert least <= noise * sensitivity(strategy, scales) * (1.0 + 1e-9)
    independent = np.diag(best)
    noise = np.linalg.norm(models @ np.linalg.inv(independent)) / math.sqrt(len(models))
    assert noise * sensitivity(independent, np.ones((len(models), 1))) == pytest.approx(least)


@pytest.mark.parametrize("apart", [1, 3])
@pytest.mark.parametrize("memory", [0.0, 2.0])
def test_what_the_table_calls_independent_and_least(apart: int, memory: float) -> None:
    """By the noise itself: σ_t ∝ a_t^(−1/2) in each cohort, and the worst client's sensitivity."""
    one = Training(6, apart, memory)
    for models in (one.models, one.models[-1:]):
        a = root_mean_square(models)
        spent = one.cohorts.T @ a  # a cohort's rounds share what it may spend
        c = np.diag(np.sqrt(a / spent[np.arange(6) % apart]))
        noise = np.square(models @ np.linalg.inv(c)).sum(axis=1).mean()
        worst = sensitivity(c, one.cohorts) ** 2
        assert noise * worst / one.least(models) == pytest.approx(one.independent(models))
    assert 1.0 <= one.alone() <= one.independent(one.models[-1:])


def test_correlated_noise_helps_those_who_take_part_seldom_and_nobody_else() -> None:
    seldom, always = Training(8, 4, 0.0), Training(8, 1, 0.0)
    last, every = seldom.correlated(4)
    assert seldom.alone() <= last < 0.8 * seldom.independent(seldom.models[-1:])
    assert 1.0 <= every < 0.8 * seldom.independent(seldom.models)
    assert always.correlated(8)[1] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("memory", "ratio"), [(0.0, 1.03), (2.0, 1.23)])
def test_the_schedule_for_the_last_model_is_not_the_best_for_all(memory: float, ratio: float) -> None:
    one = Training(24, 1, memory)
    c = np.diag(np.sqrt(one.models[-1]))
    noise = np.square(one.models @ np.linalg.inv(c)).sum(axis=1).mean() * one.models[-1].sum()
    assert noise / one.least(one.models) == pytest.approx(ratio, abs=0.005)


@pytest.mark.no_cover
@pytest.mark.parametrize(("rounds", "k", "memory"), [(24, 24, 0.0), pytest.param(24, 6, 2.0, marks=pytest.mark.slow)])
def test_the_table_is_what_the_script_prints(rounds: int, k: int, memory: float) -> None:
    assert row(rounds, k, memory) in THEORY.read_text(encoding="utf-8").splitlines()


T, EPSILON, DELTA = 25, 10.0, 1e-5


def noise_of_the_last_alone(q: float) -> float:
    """Noise for (ε, δ) if the sum of all rounds alone is released: a client moves it by a binomial number."""
    j = np.arange(T + 1)
    p = binom.pmf(j, T, q)

    def delta(s: float) -> float:
        def log_ratio(x: float) -> float:
            return float(logsumexp((2.0 * x * j - j * j) / (2.0 * s * s), b=p))

        high = brentq(lambda x: log_ratio(x) - EPSILON, -5e3 * s, 5e3 * s + 5e3)
        found = p @ norm.sf((high - j) / s) - math.exp(EPSILON) * norm.sf(high / s)
        if q == 1.0 or T * math.log1p(-q) < -EPSILON:  # else nobody's absence is ever that likely
            low = brentq(lambda x: log_ratio(x) + EPSILON, -2e4 * s - 2e4, 5e3 * s)
            found = max(found, norm.cdf(low / s) - math.exp(EPSILON) * (p @ norm.cdf((low - j) / s)))
        return float(found)

    return float(brentq(lambda s: math.log(max(delta(s), 1e-300) / DELTA), 0.4, 40.0)) / (q * T)


def noise_of_all_rounds(q: float) -> float:
    """Noise in the sum of T releases with independent noise, by Google's accountant."""

    def over(sigma: float) -> float:
        accountant = PLDAccountant(value_discretization_interval=1e-3)
        accountant.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)), T)
        return float(accountant.get_epsilon(DELTA)) - EPSILON

    return float(brentq(over, 0.5, 4.0, xtol=1e-4)) * math.sqrt(T) / (q * T)


@pytest.mark.no_cover
def test_at_a_fixed_rate_some_noise_does_better_and_at_no_rate_better_than_with_everybody() -> None:
    everybody = noise_of_all_rounds(1.0)
    assert noise_of_the_last_alone(1.0) == pytest.approx(everybody, rel=1e-3)
    for q, ratio in ((0.5, 0.97), (0.1, 0.58)):
        assert (noise_of_the_last_alone(q) / noise_of_all_rounds(q)) ** 2 == pytest.approx(ratio, abs=0.01)
    alone = [noise_of_the_last_alone(q) for q in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)]
    assert alone == sorted(alone, reverse=True)
    assert [round((noise / everybody) ** 2, 1) for noise in (alone[4], alone[1])] == [1.3, 3.7]
