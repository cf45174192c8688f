"""What is left of a plan by a planner of one's own: planned anew, paid from a ledger, offered on Flower."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import nestegg
from nestegg import (
    Budget,
    Charge,
    Group,
    InputError,
    LocalTraining,
    Plan,
    Schedule,
    Setting,
    StoppedError,
    load_plan,
    plan,
)
from nestegg.accounting import RdpAccountant, compose
from nestegg.configuration.config import load_config
from nestegg.flower.terms import Terms
from nestegg.ledger import Ledger
from nestegg.planning import GroupPlan, Standing, check_plan, replanned
from nestegg.planning.curves import Pace
from nestegg.runs import replan_run, start_run
from nestegg.training import RoundReport
from tests.callbacks import EachRound
from tests.own_federation import ROUNDS, make_federation, make_plan
from tests.planning.schedules import GROUPS, STEPS, made_by, own, small

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


@dataclass(frozen=True)
class AsLarge:
    """Noise in proportion to the learning rate, so that in the unit of updates its square is."""

    def schedule(self, setting: Setting) -> Schedule:
        return setting.calibrated(setting.spending_rate, setting.clip_scale)

    def rest(self, after: int, row: GroupPlan) -> AsLarge:
        return self


def assert_goes_on(new: Plan, old: Plan, after: int = 0) -> None:
    """Where nothing was lost, what is planned anew is what was planned."""
    for one, other in zip(new.groups, old.groups, strict=True):
        assert one.noise_multiplier == pytest.approx(other.noise_multiplier[after:], rel=1e-6)


def test_a_planner_knows_the_unit_of_clip_norms_of_what_is_left() -> None:
    pace = Pace((0.4, 0.3, 0.2, 0.1))
    made = plan(GROUPS, 4, method=AsLarge(), local=pace)
    assert_goes_on(made.replan(2, local=pace), made, 2)
    standings = {row.group.name: [Standing("here", row.group.budget, row.charges(2))] for row in made.groups}
    assert_goes_on(replanned(made, 2, standings, pace), made)
    with pytest.raises(InputError, match="local has 1 learning rates; there must be one for each of the 2 rounds"):
        made.replan(2, local=Pace((0.4, 0.3, 0.2)))


def stop(report: RoundReport) -> None:
    raise KeyboardInterrupt


def test_runs_tell_the_planner_their_learning_rates_again(tmp_path: Path) -> None:
    method = f"{__name__}:AsLarge"
    with pytest.raises(StoppedError):
        start_run(load_config(small(tmp_path, method)), tmp_path / "configured", callbacks=[EachRound(stop)])
    rates = LocalTraining().rates(ROUNDS)
    own = make_federation(make_plan(method=AsLarge(), local=rates), epochs=1)
    with pytest.raises(StoppedError):
        nestegg.run(own, tmp_path / "python", callbacks=[EachRound(stop)])
    for name in ("configured", "python"):
        made = load_plan(tmp_path / name / "plan.json")
        assert made.groups[0].noise_multiplier[0] > 2 * made.groups[0].noise_multiplier[-1]
        assert_goes_on(replan_run(tmp_path / name), made)
