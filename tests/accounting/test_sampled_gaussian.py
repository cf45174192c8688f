"""The Rényi curve against a quadrature, against finite sums, against two libraries, and against its own extremes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants.analysis.rdp import compute_rdp

from nestegg.accounting import ORDERS, rdp
from tests.examples import examples
from tests.oracles import rdp_by_binomials, rdp_by_quadrature

RATES = st.one_of(
    st.floats(0.0, 1.0),
    st.floats(-12.0, 0.0).map(lambda x: 10.0**x),
    st.floats(-15.0, 0.0).map(lambda x: 1.0 - 10.0**x),
)
NOISES = st.floats(-1.0, 5.0).map(lambda x: 10.0**x)


@pytest.mark.no_cover
@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.5, 10.9, 64.3])
@pytest.mark.parametrize(
    ("q", "sigma"),
    [(0.9, 2.4255), (0.5, 0.7), (0.01, 1.0), (1e-6, 30.0), (0.999999, 3.0), (0.3, 1e5), (1e-9, 1e5), (0.9, 0.3)],
)
def test_agrees_with_quadrature(q: float, sigma: float, alpha: float) -> None:
    assert rdp(q, sigma, [alpha])[0] == pytest.approx(rdp_by_quadrature(q, sigma, alpha), rel=1e-9)


@pytest.mark.no_cover
@pytest.mark.parametrize(("q", "sigma", "alpha"), [(0.9, 0.1, 10.9), (0.5, 0.1, 1.01), (0.2, 4.0, 1023.7)])
def test_agrees_with_quadrature_at_the_edges(q: float, sigma: float, alpha: float) -> None:
    assert rdp(q, sigma, [alpha])[0] == pytest.approx(rdp_by_quadrature(q, sigma, alpha), rel=1e-9)


@examples(60)
@given(q=RATES.filter(lambda q: 1e-12 <= q < 1.0), sigma=NOISES, alpha=st.sampled_from([2, 3, 7, 11, 64, 256, 1024]))
def test_agrees_with_the_finite_sum_at_whole_orders(q: float, sigma: float, alpha: int) -> None:
    assert rdp(q, sigma, [alpha])[0] == pytest.approx(rdp_by_binomials(q, sigma, alpha), rel=1e-8)


@examples(200)
@given(
    q=st.lists(RATES, min_size=1, max_size=4),
    sigma=NOISES,
    alpha=st.lists(st.floats(1.01, 1024.0), min_size=1, max_size=6),
)
def test_is_always_a_number_that_rises_with_the_order(q: list[float], sigma: float, alpha: list[float]) -> None:
    with warnings.catch_warnings(), np.errstate(over="raise", invalid="raise"):
        warnings.simplefilter("error")
        curve = rdp(q, sigma, sorted(alpha))
    assert np.all(np.isfinite(curve))
    assert np.all(curve >= 0.0)
    assert np.all(np.diff(curve, axis=-1) >= -1e-8 * curve[:, :-1])
    unsampled = np.array(sorted(alpha)) / (2.0 * sigma**2)
    assert np.all(curve <= unsampled * (1.0 + 1e-9))


def test_the_ends_of_the_rate_are_exact() -> None:
    assert np.all(rdp(0.0, 0.1, ORDERS) == 0.0)
    assert np.array_equal(rdp(1.0, 3.0, ORDERS), np.array(ORDERS) / 18.0)
    assert rdp(1.0 - 1e-12, 3.0, [7.0])[0] == pytest.approx(7.0 / 18.0, rel=1e-9)


def test_a_batch_is_its_rows() -> None:
    q, sigma = np.array([[0.9, 0.5, 0.0], [1.0, 1e-4, 0.3]]), np.array([2.0, 0.3, 900.0])
    batch = rdp(q, sigma, ORDERS)
    assert batch.shape == (2, 3, len(ORDERS))
    for i in range(2):
        for j in range(3):
            assert batch[i, j] == pytest.approx(rdp(q[i, j], sigma[j], ORDERS), rel=1e-11)


@pytest.mark.parametrize(("q", "sigma"), [(0.9, 2.4255), (0.5, 1.0), (0.01, 1.1), (0.1, 20.0)])
def test_agrees_with_opacus(q: float, sigma: float) -> None:
    orders = [1.0 + x / 10.0 for x in range(1, 100)] + [float(k) for k in range(12, 64)]
    theirs = compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=orders)
    assert rdp(q, sigma, orders) == pytest.approx(theirs, rel=1e-7)


def test_opacus_loses_its_digits_on_weak_releases() -> None:
    """Its curve of σ = 1e5 comes from log(1 + 5e-11·q²…) and is off by more than 1 in 10,000; ours is not."""
    ours, true = rdp(0.01, 1e5, [2.0])[0], rdp_by_binomials(0.01, 1e5, 2)
    theirs = float(compute_rdp(q=0.01, noise_multiplier=1e5, steps=1, orders=[2.0])[0])
    assert ours == pytest.approx(true, rel=1e-12)
    assert abs(theirs / true - 1.0) > 1e-4


@pytest.mark.parametrize(("q", "sigma"), [(0.9, 2.4255), (0.01, 1.1)])
def test_agrees_with_dp_accounting_at_whole_orders(q: float, sigma: float) -> None:
    orders = [float(k) for k in range(2, 64)]
    assert rdp(q, sigma, orders) == pytest.approx(_dp_accounting(q, sigma, orders), rel=1e-7)


def test_dp_accounting_is_safe_but_loose_at_fractional_orders() -> None:
    orders = [1.0 + x / 10.0 for x in range(1, 99) if x % 10]
    theirs, ours = _dp_accounting(0.9, 1.0, orders), rdp(0.9, 1.0, orders)
    assert np.all(theirs >= ours * (1.0 - 1e-9))
    assert np.max(theirs / ours) > 1.05


def _dp_accounting(q: float, sigma: float, orders: list[float]) -> np.ndarray:
    import dp_accounting

    accountant = rdp_privacy_accountant.RdpAccountant(orders)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma)))
    return np.array(accountant._rdp)
