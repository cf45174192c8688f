"""Planning anew what is left, from what was really spent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nestegg import (
    Budget,
    Charge,
    Group,
    InputError,
    Plan,
    Shaped,
    plan,
)
from nestegg.planning import Standing, replanned
from tests.conftest import ANY_LENGTH, GROUPS, with_history
from tests.oracles import epsilon_by_google

ELSEWHERE = (Charge(0.3, 1.5, 4), Charge(0.9, 3.0, 2))  # releases to a sample of clients


@pytest.mark.slow
def test_replanning_an_undisturbed_plan_changes_nothing(exact: Plan) -> None:
    for after in (0, 5, 12, 13, 24):
        rest = exact.replan(after)
        assert rest.rounds == 25 - after
        for old, new in zip(exact.groups, rest.groups, strict=True):
            assert new.noise_multiplier == pytest.approx(old.noise_multiplier[after:], rel=1e-6)
            assert new.epsilon_spent[-1] <= new.group.budget.epsilon
        rest.verify()


def test_a_lost_round_is_paid_by_more_noise_and_nobody_goes_over(exact: Plan) -> None:
    row = exact.groups[0]
    twice = Charge(row.sampling_rate[5], row.noise_multiplier[5])
    rest = exact.replan(after=6, lost={"strict": [twice]})
    assert rest.groups[0].noise_multiplier[-1] > row.noise_multiplier[-1]
    assert rest.groups[1].noise_multiplier == pytest.approx(exact.groups[1].noise_multiplier[6:], rel=1e-6)
    assert 0.999 * 10.0 <= rest.groups[0].epsilon_spent[-1] <= 10.0
    assert twice.rounds + 6 == sum(charge.rounds for charge in rest.groups[0].already_spent)
    rest.verify()


@pytest.mark.parametrize("method", ["shaped", "idp-fedavg", "dp-fedavg", "adaptive-clipping"])
def test_every_method_can_be_replanned(method: str) -> None:
    made = plan(ANY_LENGTH, rounds=8, method=method)
    rest = made.replan(3)
    for old, new in zip(made.groups, rest.groups, strict=True):
        assert new.noise_multiplier == pytest.approx(old.noise_multiplier[3:], rel=1e-6)


def test_a_used_up_budget_is_refused() -> None:
    with pytest.raises(InputError, match="'strict': epsilon = 10 at delta = 1e-05 cannot be met by any noise"):
        plan(with_history(ANY_LENGTH, {"strict": [Charge(0.9, 2.0, 25)]}), rounds=5)
    with pytest.raises(InputError, match="lost = 'strcit'"):
        plan(ANY_LENGTH, rounds=5).replan(2, {"strcit": [Charge(0.9, 2.0, 25)]})


@pytest.mark.parametrize(
    "history",
    [
        Charge(0.5, 2.0),
        "xyz",
        7,
        [(0.5,)],
        ["xyz"],
        [Charge(1.5, 2.0)],
        [Charge(0.5, 0.0)],
        [Charge(0.5, 1e9)],
        [Charge(0.5, 2.0, 0)],
        [Charge(0.5, 2.0, 1.5)],  # type: ignore[arg-type]
    ],
)
def test_a_history_that_makes_no_sense_is_refused(history: Any) -> None:
    with pytest.raises(InputError, match="already_spent"):
        plan([Group("strict", 3, Budget(5.0), already_spent=history)], 25)
    with pytest.raises(InputError, match="lost"):
        plan(GROUPS, 25).replan(2, {"strict": history})


@pytest.mark.parametrize("lost", [[Charge(0.5, 2.0)], {"nobody": [Charge(0.5, 2.0)]}])
def test_what_is_lost_belongs_to_a_group(lost: Any) -> None:
    with pytest.raises(InputError, match="lost"):
        plan(GROUPS, 25).replan(2, lost)


def test_fedavg_can_be_replanned() -> None:
    assert plan(ANY_LENGTH, rounds=8, method="fedavg").replan(3).rounds == 5


@pytest.mark.parametrize("method", ["adaptive-clipping", "dp-fedavg"])
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_one_noise_for_all_whatever_their_histories(method: str, accountant: str) -> None:
    made = plan(ANY_LENGTH, 10, method=method, accountant=accountant)
    rest = made.replan(4, {"middle": [Charge(0.9, 2.0, 3)]})
    first, *others = (row.noise_multiplier for row in rest.groups)
    assert all(other == first for other in others)
    assert min(first) > max(made.groups[0].noise_multiplier)
    rest.verify()


def test_every_group_goes_on_with_its_own_curve() -> None:
    """After one group was planned anew, the curves of two groups differ."""
    made = plan(ANY_LENGTH[:2], 8, method=Shaped([4.0, 3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0]))
    strict, middle = made.groups
    done = {row.group.name: row.charges(2) for row in made.groups}
    flat = replace(middle, noise_multiplier=(*middle.noise_multiplier[:2], *(2.0,) * 6))
    changed = replace(made, groups=(strict, flat))
    standings = {name: [Standing("this run", Budget(30.0), charges)] for name, charges in done.items()}
    for rest in (changed.replan(2), replanned(changed, 2, standings)):
        for old, new in zip(changed.groups, rest.groups, strict=True):
            sigma = new.noise_multiplier[-6:]
            assert np.array(sigma) / sigma[0] == pytest.approx(
                np.array(old.noise_multiplier[2:]) / old.noise_multiplier[2]
            )
            assert 0.999 * new.group.budget.epsilon <= new.epsilon_spent[-1] <= new.group.budget.epsilon


@pytest.mark.parametrize("method", ["optimal", "idp-fedavg", "dp-fedavg"])
def test_a_gaussian_plan_goes_on_by_what_knows_sampling_where_somebody_was_sampled_elsewhere(method: str) -> None:
    made = plan(ANY_LENGTH, 8, method=method, accountant="gaussian", spending_rate=1.0)
    rest = made.replan(3, {"strict": ELSEWHERE})
    assert (rest.accountant, rest.spending_rate, rest.parameters) == ("rdp", 1.0, made.parameters)
    rest.verify()
    spent = {row.group.name: epsilon_by_google(row.charges(), 1e-5, by="rdp") for row in rest.groups}
    assert spent["strict"] == pytest.approx(10.0, rel=2e-3)  # nobody is over, and nothing is left
    for row in rest.groups:
        assert epsilon_by_google(row.charges(), 1e-5, by="pld") <= row.group.budget.epsilon
    assert {*ELSEWHERE} <= {*rest.groups[0].already_spent}


def test_a_gaussian_plan_stays_exact_where_everybody_was_in_every_round() -> None:
    made = plan(ANY_LENGTH, 8, method="optimal")
    rest = made.replan(3, {"strict": [Charge(1.0, 5.0, 2)]})
    assert rest.accountant == "gaussian"
    for row in rest.groups:
        assert epsilon_by_google(row.charges(), 1e-5, by="pld") == pytest.approx(row.group.budget.epsilon, rel=2e-3)


def test_only_members_who_were_sampled_elsewhere_are_accounted_for_by_what_knows_sampling() -> None:
    made = plan(ANY_LENGTH, 8, method="optimal")
    own = {row.group.name: Standing("this run", row.group.budget, row.charges(3)) for row in made.groups}
    bob = Standing("client bob", Budget(10.0), (*own["strict"].charges, *ELSEWHERE))
    new = replanned(made, 3, {name: [one, bob] if name == "strict" else [one] for name, one in own.items()})
    assert new.accountant == "gaussian"  # of this run, in which everybody is in every round
    charges = (*ELSEWHERE, *new.groups[0].charges())
    assert epsilon_by_google(charges, 1e-5, by="rdp") == pytest.approx(10.0, rel=2e-3)
    for before, after in zip(made.groups[1:], new.groups[1:], strict=True):
        assert after.noise_multiplier == pytest.approx(before.noise_multiplier, rel=1e-9)
    new.verify()
