"""Plans of every method, replayed release by release through the accountants of other people's libraries.

The accountants of pfl, and OpenDP's filter beside the ledger's, need environments of their own: bench/third_parties.py.
"""

from __future__ import annotations

import warnings
from fractions import Fraction
from functools import cache

import pytest
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant as GooglesRdp
from opacus.accountants import PRVAccountant
from opacus.accountants import RDPAccountant as OpacusRdp

from nestegg import Budget, Charge, Group, Plan, plan
from nestegg.accounting import ORDERS, RdpAccountant, compose
from nestegg.planning.registry import METHODS

PRIVATE = sorted(name for name, method in METHODS.items() if method.is_private)
# Whole orders, at which everybody has the same finite sum. dp_accounting ends the series of fractional ones early: at
# q = 0.5 its curve is up to 2e-5 of itself above ours, Opacus' and a 40-digit quadrature.
GRID = tuple(order for order in ORDERS if order.is_integer() and order <= 64.0)
DELTA = 1e-5


@cache
def made(method: str) -> Plan:
    """Six rounds for two groups; the rounds of saving clients have two rates and many noises."""
    groups = [
        Group("strict", 3, Budget(3.0, DELTA), saving_rate=0.5, transition=4),
        Group("open", 2, Budget(8.0, DELTA)),
    ]
    return plan(groups, 6, method=method, spending_rate=0.9, clip_norm=1.0)


def charges(method: str) -> list[tuple[float, tuple[Charge, ...]]]:
    """Every group's budget and releases."""
    return [(row.group.budget.epsilon, row.charges()) for row in made(method).groups]


def event(released: tuple[Charge, ...]) -> DpEvent:
    """The releases as dp_accounting describes them."""
    return ComposedDpEvent(
        [SelfComposedDpEvent(PoissonSampledDpEvent(q, GaussianDpEvent(sigma)), n) for q, sigma, n in released]
    )


@pytest.mark.parametrize("method", PRIVATE)
def test_dp_accountings_events_by_rdp_and_by_pld(method: str) -> None:
    for budget, released in charges(method):
        ours = float(compose(RdpAccountant(GRID), released).epsilon(DELTA)[0])
        by_rdp, by_pld = GooglesRdp(GRID), PLDAccountant(value_discretization_interval=1e-3)
        by_rdp.compose(event(released))
        by_pld.compose(event(released))
        assert by_rdp.get_epsilon(DELTA) == pytest.approx(ours, rel=1e-9)
        assert by_pld.get_epsilon(DELTA) < min(by_rdp.get_epsilon(DELTA), budget)


@pytest.mark.parametrize("method", PRIVATE)
def test_opacus_by_rdp_and_by_prv(method: str) -> None:
    for budget, released in charges(method):
        by_rdp, by_prv = OpacusRdp(), PRVAccountant()
        by_rdp.history = by_prv.history = [(sigma, q, n) for q, sigma, n in released]
        ours = float(compose(RdpAccountant(GRID), released).epsilon(DELTA)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the best order may be the last
            assert by_rdp.get_epsilon(DELTA, alphas=list(GRID)) == pytest.approx(ours, rel=1e-9)
        assert by_prv.get_epsilon(DELTA, eps_error=0.05) <= budget


@pytest.mark.parametrize("method", PRIVATE)
def test_flowers_accountant(method: str) -> None:
    """It knows rates as so many of so many clients."""
    flower = pytest.importorskip("flwr.supercore.privacy_accounting")
    accountant = pytest.importorskip("flwr.supercore.privacy_accounting.rdp_accountant")
    config = flower.PrivacyConfig(
        DELTA, 10, flower.NeighboringRelation.ADD_OR_REMOVE_ONE, flower.SamplingMethod.POISSON
    )
    for _, released in charges(method):
        theirs = accountant.RdpAccountant(config, GRID)
        for q, sigma, n in released:
            share = Fraction(q).limit_denominator(10)
            assert float(share) == q
            theirs.compose(flower.GaussianPrivacyEvent(sigma, int(share * 10), 10), n)
        ours = float(compose(RdpAccountant(GRID), released).epsilon(DELTA)[0])
        assert theirs.get_epsilon(DELTA) == pytest.approx(ours, rel=1e-9)


def test_they_notice_a_plan_with_too_little_noise() -> None:
    budget, released = charges("spend-as-you-go")[0]
    weak = tuple(Charge(q, 0.8 * sigma, n) for q, sigma, n in released)
    by_pld, by_prv = PLDAccountant(value_discretization_interval=1e-3), PRVAccountant()
    by_pld.compose(event(weak))
    by_prv.history = [(sigma, q, n) for q, sigma, n in weak]
    assert by_pld.get_epsilon(DELTA) > budget
    assert by_prv.get_epsilon(DELTA, eps_error=0.05) > budget
