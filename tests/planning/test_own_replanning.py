"""What is left of a plan by a planner of one's own: planned anew, paid from a ledger, offered on Flower."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestegg import Budget, Charge, Group, InputError, plan
from nestegg.accounting import RdpAccountant, compose
from nestegg.flower.terms import Terms
from nestegg.ledger import Ledger
from nestegg.planning import Standing, check_plan, replanned
from tests.planning.schedules import STEPS, made_by, own

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("name", ["Steps", "Ramp"])
def test_what_is_left_follows_from_what_is_spent(name: str) -> None:
    made = made_by(name)
    rest = made.replan(2)
    for old, new in zip(made.groups, rest.groups, strict=True):
        assert new.sampling_rate == pytest.approx(old.sampling_rate[2:])
        assert new.noise_multiplier == pytest.approx(old.noise_multiplier[2:], rel=1e-6)
    rest.verify()
    assert rest.parameters == ({"at": 2, "share": 0.5} if name == "Steps" else made.parameters)
    lost = made.replan(2, {"strict": [Charge(0.5, 4.0)]})
    assert lost.groups[0].noise_multiplier[0] > 1.001 * made.groups[0].noise_multiplier[2]
    assert lost.groups[1].noise_multiplier == pytest.approx(rest.groups[1].noise_multiplier)
    lost.replan(1).verify()


@pytest.mark.parametrize("name", ["Steps", "Ramp"])
def test_members_who_stand_differently_stay_within_their_budgets(name: str) -> None:
    made = made_by(name)
    standings = {row.group.name: [Standing("this run", row.group.budget, row.charges(3))] for row in made.groups}
    earlier = Standing("ada", Budget(4.5), (*made.groups[0].charges(3), Charge(0.5, 1.5, 2)))
    standings["strict"].append(earlier)
    again = replanned(made, 3, standings)
    check_plan(again)
    again.verify()
    assert again.parameters == made.parameters
    assert again.groups[0].noise_multiplier[:3] == made.groups[0].noise_multiplier[:3]
    assert again.groups[0].noise_multiplier[3] > made.groups[0].noise_multiplier[3]
    assert again.groups[1].noise_multiplier == pytest.approx(made.groups[1].noise_multiplier, rel=1e-6)


def test_members_of_a_group_share_the_rate_that_all_can_pay() -> None:
    made = made_by("Careful")
    here = {row.group.name: [Standing("this run", row.group.budget, row.charges(3))] for row in made.groups}
    done = made.groups[0].charges(3)
    others = [Standing("ada", Budget(3.8), done), Standing("bob", Budget(7.0), (*done, Charge(0.9, 1.5, 2)))]
    (row, other) = replanned(made, 3, {**here, "strict": [*here["strict"], *others]}).groups
    assert row.sampling_rate == pytest.approx([0.4] * 3 + [0.38] * 3)
    assert other.sampling_rate == pytest.approx([0.8] * 6)
    later = list(map(Charge, row.sampling_rate[3:], row.noise_multiplier[3:]))
    spent = [compose(RdpAccountant(), [*one.charges, *later]).epsilon(1e-5)[0] for one in others]
    assert [epsilon <= one.budget.epsilon for epsilon, one in zip(spent, others, strict=True)] == [True, True]


def test_a_rest_that_fails_is_a_sentence() -> None:
    with pytest.raises(InputError, match=r"my_schedules:Restless: rest\(after, row\) failed, KeyError: 'strict'"):
        made_by("Restless").replan(2)


def test_a_ledger_keeps_and_replans_it(tmp_path: Path) -> None:
    made = plan([Group("all", 2, Budget(4.0))], 4, method=own("Steps", at=2), spending_rate=1.0, accountant="renyi")
    with Ledger(tmp_path / "ledger.db") as ledger:
        books = ledger.begin("monday", made, ["ada", "bob"], unknown=[Budget(6.0), Budget(6.0)])
        new = books.replan()
        new.verify()
        assert new.method == STEPS
        assert ledger.books("monday").plan == new


def test_flowers_terms_take_it() -> None:
    made = made_by("Ramp")
    terms = Terms("monday", made, "flat", 0, (0.5,) * made.rounds)
    assert Terms.parse(terms.text).digest == terms.digest
    assert terms.order("open", 3).clip_norm == pytest.approx(0.5 * made.groups[1].clip_norm[2])
