"""Calibrating at fewer orders changes no bit of a plan, and plans are digested when somebody asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestegg
from nestegg import Budget, Charge, Group, Optimal, Shaped
from nestegg.accounting import RdpAccountant

GROUPS = [
    Group("strict", 34, Budget(0.3)),
    Group("middle", 43, Budget(3.0), already_spent=[Charge(0.9, 60.0, 4)]),
    Group("open", 23, Budget(40.0)),
]


@pytest.mark.no_cover
@pytest.mark.parametrize("rate", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("method", [Optimal(), Optimal(spare=0.3), Shaped("linear", 4.0), Shaped("cosine", 0.02)])
def test_fewer_orders_change_no_bit(method: Any, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    few = nestegg.plan(GROUPS, 6, method=method, spending_rate=rate, accountant="rdp")
    monkeypatch.setattr(RdpAccountant, "below", lambda self, *_: self)
    assert nestegg.plan(GROUPS, 6, method=method, spending_rate=rate, accountant="rdp").digest == few.digest


def test_where_a_first_guess_leaves_out_too_much_all_orders_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nestegg.plan(GROUPS[:1], 12, method=Shaped(), accountant="rdp").digest
    real, calls = RdpAccountant.below, 0

    def too_few(self: RdpAccountant, spent: Any, delta: float) -> RdpAccountant:
        nonlocal calls
        calls += 1
        return RdpAccountant(self.orders[:20]) if calls == 1 else real(self, spent, delta)

    monkeypatch.setattr(RdpAccountant, "below", too_few)
    assert nestegg.plan(GROUPS[:1], 12, method=Shaped(), accountant="rdp").digest == whole


def test_most_orders_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated, real = 0, RdpAccountant.spend

    def counted(self: RdpAccountant, q: Any, sigma: Any) -> Any:
        nonlocal evaluated
        evaluated += sum(order > 16.0 for order in self.orders)
        return real(self, q, sigma)

    monkeypatch.setattr(RdpAccountant, "spend", counted)
    nestegg.plan(GROUPS[2:], 25, method="optimal", spending_rate=0.9)
    assert evaluated < 10 * sum(order > 16.0 for order in RdpAccountant().orders)  # of 150 or so curves


def test_a_plan_is_digested_when_somebody_asks() -> None:
    made = nestegg.plan(GROUPS, 12, method="idp-fedavg")
    assert "digest" not in vars(made)
    nestegg.planning.check_promises(made)
    assert "digest" not in vars(made)


@pytest.mark.no_cover
@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_many_rounds_are_met_as_closely_as_few(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coarse search comes first; the exact one decides, from the safe side."""
    made = nestegg.plan(GROUPS, 101, method="optimal", spending_rate=rate)
    for row in made.groups:
        budget = row.group.budget.epsilon
        assert budget * (1.0 - 1e-8) <= row.epsilon_spent[-1] <= budget
    monkeypatch.setattr("nestegg.planning.planners.optimal._MANY", 10**6)
    plain = nestegg.plan(GROUPS, 101, method="optimal", spending_rate=rate)
    noise, other = ([row.noise_multiplier for row in one.groups] for one in (made, plain))
    np.testing.assert_allclose(noise, other, rtol=1e-8)
