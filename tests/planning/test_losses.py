"""What releases amount to by privacy loss distributions, with noise multipliers rounded down and exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestegg import Budget, Charge, Group, GroupPlan, plan
from nestegg.accounting import RdpAccountant, compose, merged
from nestegg.errors import VerificationError
from nestegg.planning import epsilon_by_pld, judge, judged, losses, verify
from nestegg.planning.losses import loss, rounded_down
from tests.oracles import epsilon_by_google

PAPER = [
    Group("strict", 34, Budget(10.0), saving_rate=0.5, transition=13),
    Group("open", 23, Budget(30.0), saving_rate=0.7, transition=13),
]
MANY = [Group("a", 10, Budget(8.0), saving_rate=0.8, transition=81)]


@pytest.mark.no_cover
@pytest.mark.parametrize("row", plan(PAPER, 25).groups, ids=lambda row: row.group.name)
def test_paper_example_is_never_below_exact_distributions(row: GroupPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = epsilon_by_google(row.charges(), 1e-5, by="pld")
    assert exact * (1.0 - 1e-6) <= loss(row.charges(), 1e-5).epsilon <= exact * (1.0 + 1e-4)
    monkeypatch.setattr(losses, "_FEW", 1)  # as if there were many releases, rounded with a visible width
    rounded = loss(row.charges(), 1e-5, width=0.05).epsilon
    assert exact * (1.0 + 1e-3) < rounded < exact * 1.1


@pytest.mark.no_cover
def test_many_rounds_are_judged_by_few_releases_within_the_stated_tolerance() -> None:
    (row,) = plan(MANY, 100).groups
    charges = row.charges()
    assert len(charges) == 81
    assert len(rounded_down(charges, losses.WIDTH)) < 60
    exact, rounded = loss(charges, 1e-5, width=0.0), loss(charges, 1e-5)
    assert exact.epsilon < rounded.epsilon <= exact.epsilon * (1.0 + 5e-4)
    assert exact.advantage < rounded.advantage <= exact.advantage + 5e-4
    assert exact.epsilon == pytest.approx(epsilon_by_google(charges, 1e-5, by="pld"), rel=1e-4)


def test_rounding_down_keeps_rates_and_rounds_and_never_adds_noise() -> None:
    charges = merged(Charge(q, 2.0 + k * 7e-4, 1 + k % 2) for k in range(40) for q in (0.5, 0.9))
    rounded = rounded_down(charges, 2e-3)
    for q in (0.5, 0.9):
        before = sorted(s for c in charges if c.sampling_rate == q for s in [c.noise_multiplier] * c.rounds)
        after = sorted(s for c in rounded if c.sampling_rate == q for s in [c.noise_multiplier] * c.rounds)
        assert len(before) == len(after)
        assert all(b / (1.0 + 2e-3) * (1 - 1e-12) <= a <= b for a, b in zip(after, before, strict=True))
    assert rounded_down(charges, 0.0) == tuple(sorted(charges))


def test_a_plan_with_nothing_to_spare_is_judged_exactly_before_anybody_is_accused() -> None:
    (row,) = plan(MANY, 100).groups
    exact, rounded = epsilon_by_pld(row, width=0.0), epsilon_by_pld(row)
    between = Budget((exact + rounded) / 2.0, 1e-5)
    made = plan(MANY, 100)
    tight = replace(made, groups=(replace(row, group=replace(row.group, budget=between)),))
    verdict = judge._judge(tight, tight.groups[0])
    assert verdict == (exact, "PLD")
    over = replace(made, groups=(replace(row, group=replace(row.group, budget=Budget(exact * 0.999))),))
    assert judge._judge(over, over.groups[0]).epsilon > exact * 0.999


def test_a_file_may_state_the_exact_number_or_the_rounded_one_but_no_other() -> None:
    made = judged(plan(MANY, 100))
    (row,) = made.groups
    exact = epsilon_by_pld(row, width=0.0)
    for stated in (row.epsilon_spent_pld, exact):
        assert verify(replace(made, groups=(replace(row, epsilon_spent_pld=stated),)))[0].judge == "PLD"
    with pytest.raises(VerificationError, match="epsilon_spent_pld"):
        verify(replace(made, groups=(replace(row, epsilon_spent_pld=exact * 0.99),)))


def test_distributions_stay_tighter_than_rényi_curves() -> None:
    (row,) = plan(MANY, 100).groups
    by_rdp = float(compose(RdpAccountant(), row.charges()).epsilon(1e-5)[0])
    assert loss(row.charges(), 1e-5).epsilon < by_rdp
