"""ε and allowances by the Gaussian formula are to the bit those of plain bisection, at a fraction of its questions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nestegg.accounting import Array, GaussianSpending, gaussian, gaussian_allowance
from tests.examples import examples

Asked = Callable[[NDArray[np.intp], Array], NDArray[np.bool_]]


def plainly(below: Asked, top: Array, near: Array) -> tuple[Array, Array]:
    """64 bisections, each of them asked."""
    low, high, rows = np.zeros_like(top), top.copy(), np.arange(top.size)
    for _ in range(64):
        middle = (low + high) / 2.0
        is_below = below(rows, middle)
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return low, high


def both(squares: Array, delta: float) -> tuple[Array, Array]:
    return GaussianSpending(squares).epsilon(delta), gaussian_allowance(np.maximum(squares, 1e-300), delta)


def assert_same_bits(squares: Array, delta: float) -> None:
    ours = both(squares, delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "_bisected", plainly)
        theirs = both(squares, delta)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


@examples(60)
@given(seed=st.integers(0, 2**32), delta=st.floats(1e-18, 0.9999999), middle=st.floats(-30.0, 14.0))
def test_the_bits_are_those_of_bisection(seed: int, delta: float, middle: float) -> None:
    logs = np.random.default_rng(seed).uniform(middle - 2.0, middle + 2.0, 50)
    assert_same_bits(np.exp(logs), delta)


def test_rows_of_all_sizes_side_by_side_and_of_nothing() -> None:
    squares = np.concatenate([[0.0, 5e-324, 1e-200], np.geomspace(1e-30, 1e9, 20_000)])  # several chunks
    assert_same_bits(squares, 1e-5)
    assert GaussianSpending(np.zeros(0)).epsilon(1e-5).size == 0


@pytest.mark.parametrize("wrong", [np.nan, 0.0, np.inf, 0.7, 1.0 + 1e-12])
def test_a_wrong_start_changes_nothing(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Newton's method does not end at the root, ends that were not asked are found out."""
    squares = np.exp(np.random.default_rng(1).uniform(-6.0, 6.0, 200))
    right, real = both(squares, 1e-5), gaussian._by_newton
    monkeypatch.setattr(gaussian, "_by_newton", lambda *start: real(*start) * wrong)
    for one, other in zip(both(squares, 1e-5), right, strict=True):
        np.testing.assert_array_equal(one, other)


def test_few_questions_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = 0, gaussian._log_delta

    def counted(mu: Array, epsilon: Array) -> tuple[Array, Array, Array]:
        nonlocal asked
        asked += mu.size
        return real(mu, epsilon)

    monkeypatch.setattr(gaussian, "_log_delta", counted)
    squares = np.geomspace(0.05, 20.0, 1000)
    GaussianSpending(squares).epsilon(1e-5)
    assert asked < 20 * squares.size  # bisection alone takes 65
