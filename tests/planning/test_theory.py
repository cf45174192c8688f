"""The paper's theory, tested as properties and against simulation and brute force."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestegg import InputError
from nestegg.planning.theory import (
    assign_saving_rates,
    bias_bound_given_budgets,
    bias_bound_random_budgets,
    rdp_per_round,
)
from tests.examples import examples
from tests.oracles import rdp_per_round_by_recursion

HORIZON = st.integers(1, 60).flatmap(lambda rounds: st.tuples(st.just(rounds), st.integers(1, rounds)))
RATES = st.floats(0.01, 1.0).flatmap(lambda q: st.tuples(st.floats(0.001, q), st.just(q)))


@given(total=st.floats(0.01, 100.0), horizon=HORIZON, rates=RATES)
def test_lemma_1_solves_the_recursion(total: float, horizon: tuple[int, int], rates: tuple[float, float]) -> None:
    closed = rdp_per_round(total, *horizon, *rates)
    assert closed == pytest.approx(rdp_per_round_by_recursion(total, *horizon, *rates), rel=1e-9)
    assert closed.sum() == pytest.approx(total, rel=1e-9)


@given(horizon=HORIZON, rates=RATES)
def test_theorem_1_spending_never_falls(horizon: tuple[int, int], rates: tuple[float, float]) -> None:
    spent = rdp_per_round(1.0, *horizon, *rates)
    transition = horizon[1]
    assert np.all(np.diff(spent) >= -1e-12)
    assert spent[transition - 1 :] == pytest.approx(np.full(horizon[0] - transition + 1, spent[-1]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rho", [1.5, 2.0, 3.0])
def test_theorems_2_and_3_bound_the_bias_of_the_mechanism(seed: int, rho: float) -> None:
    """Exact expectation over sampling (noise has mean 0) of random updates, some of them far above the clip norm."""
    rng = np.random.default_rng(seed)
    clients, dimensions, draws = 6, 3, 400
    updates = rng.normal(rng.normal(size=(clients, 1, dimensions)), 2.0, size=(clients, draws, dimensions))
    norms = np.linalg.norm(updates, axis=-1)
    q, c = rng.uniform(0.2, 0.9, clients), rng.uniform(0.5, 4.0, clients)

    def bias(rates: np.ndarray, clips: np.ndarray) -> np.ndarray:
        clipped = updates * np.minimum(1.0, clips[:, None] / norms)[..., None]
        weighted = (rates / rates.mean())[:, None] * clipped.mean(axis=1)
        difference: np.ndarray = updates.mean(axis=(0, 1)) - weighted.mean(axis=0)
        return difference

    moments = (norms**rho).mean(axis=1)
    fixed = bias_bound_given_budgets(updates.mean(axis=1), moments, q, c, rho)
    assert np.linalg.norm(bias(q, c)) <= fixed
    orders = [list(order) for order in permutations(range(clients))]
    expected = np.mean([bias(q[order], c[order]) for order in orders], axis=0)
    assert np.linalg.norm(expected) <= bias_bound_random_budgets(moments, q, c, rho)


@examples(60)
@given(
    pairs=st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.01, 10.0)), min_size=1, max_size=6),
    rho=st.floats(1.1, 4.0),
)
def test_the_assignment_is_optimal(pairs: list[tuple[float, float]], rho: float) -> None:
    rates, clips = np.array(pairs).T
    _check_optimal(rates, clips, rho)


def test_the_assignment_is_optimal_for_seven() -> None:
    rng = np.random.default_rng(7)
    _check_optimal(rng.uniform(0.1, 0.9, 7), rng.uniform(0.5, 5.0, 7), 2.0)


def _check_optimal(rates: np.ndarray, clips: np.ndarray, rho: float) -> None:
    ones = np.ones(len(rates))
    ours = bias_bound_random_budgets(ones, assign_saving_rates(rates, clips), clips, rho)
    every = np.array(list(permutations(rates)))
    brute = (every / every.mean(axis=1, keepdims=True) / clips ** (rho - 1.0)).mean(axis=1).min()
    assert ours == pytest.approx(brute, rel=1e-9)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="rho = 1"):
        bias_bound_random_budgets([1.0], [0.5], [1.0], rho=1.0)
    with pytest.raises(InputError, match="one value for each client"):
        bias_bound_random_budgets([1.0, 2.0], [0.5], [1.0])
    with pytest.raises(InputError, match="rates has 1 values and clip_norms has 2"):
        assign_saving_rates([0.5], [1.0, 2.0])
    with pytest.raises(InputError, match=r"saving_rate = 0\.9"):
        rdp_per_round(1.0, 5, 2, 0.9, 0.5)
