"""The planners: the reference numbers, the theory's properties, and a page of plain Python that must agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant as GooglesRdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants.analysis.rdp import compute_rdp

from nestegg import (
    Budget,
    Charge,
    Group,
    InputError,
    Plan,
    Setting,
    Shaped,
    SpendAsYouGo,
    Uniform,
    VerificationError,
    grouped,
    load_plan,
    plan,
    save_plan,
)
from nestegg.accounting import (
    ORDERS,
    SMALLEST_DELTA,
    GaussianAccountant,
    RdpAccountant,
    compose,
    filter_order,
    gaussian_allowance,
    rdp,
    renyi_account,
)
from nestegg.planning import COMPARED, METHODS, SHAPES, Planner, Standing, epsilon_by_pld, judged, replanned, verify
from nestegg.planning.judge import epsilons
from tests.conftest import ANY_LENGTH, GROUPS, with_history
from tests.examples import examples
from tests.oracles import epsilon_from_rdp, gaussian_epsilon, spend_as_you_go_by_bisection

GROUP = st.builds(
    Group,
    name=st.uuids().map(str),
    clients=st.integers(1, 1000),
    budget=st.floats(0.5, 60.0).map(Budget),
    saving_rate=st.floats(0.05, 0.9),
    transition=st.integers(1, 12),
)
FEDERATION = st.lists(GROUP, min_size=1, max_size=4, unique_by=lambda group: group.name)


def noise(made: Plan, *rounds: int) -> list[float]:
    return [made.groups[0].noise_multiplier[t - 1] for t in rounds]


def test_exact_reference_numbers(exact: Plan) -> None:
    assert noise(exact, 1, 12, 13, 25) == pytest.approx([2.424, 2.014, 1.967, 1.967], abs=6e-4)
    assert exact.groups[0].epsilon_spent[-1] == pytest.approx(10.0, abs=1e-6)


def test_paper_reference_numbers(paper: Plan) -> None:
    assert noise(paper, 1, 12, 13, 25) == pytest.approx([2.424, 2.528, 2.488, 1.684], abs=6e-4)
    assert paper.groups[0].epsilon_spent[-1] == pytest.approx(8.079, abs=6e-4)
    assert epsilon_by_pld(paper.groups[0]) == pytest.approx(7.48, abs=6e-3)


def test_uniform_reference_number() -> None:
    made = plan(GROUPS, rounds=25, method="idp-fedavg")
    assert set(made.groups[0].noise_multiplier) == set(noise(made, 1))
    assert noise(made, 1)[0] == pytest.approx(2.424, abs=6e-4)


def test_exact_planner_agrees_with_plain_python() -> None:
    orders = [order for order in ORDERS if order <= 64.0]
    expected = spend_as_you_go_by_bisection(
        lambda q, sigma: rdp(q, sigma, orders).tolist(), 8.0, 1e-5, 9, 0.8, 0.4, 6, orders
    )
    group = Group("g", 5, Budget(8.0), saving_rate=0.4, transition=6)
    made = plan([group], rounds=9, spending_rate=0.8)
    assert made.groups[0].noise_multiplier == pytest.approx(expected, rel=1e-8)


@examples(25)
@given(groups=FEDERATION, composition=st.sampled_from(["exact", "paper"]))
def test_nobody_overspends_after_any_round(groups: list[Group], composition: str) -> None:
    made = plan(groups, rounds=12, method=SpendAsYouGo(composition))
    for row in made.groups:
        curves = rdp(np.array(row.sampling_rate), np.array(row.noise_multiplier), ORDERS)
        spent = [epsilon_from_rdp(list(ORDERS), curve, 1e-5) for curve in np.cumsum(curves, axis=0).tolist()]
        assert row.epsilon_spent == pytest.approx(spent, rel=1e-9)
        assert max(spent) <= row.group.budget.epsilon
        if composition == "exact":
            assert spent[-1] >= 0.999 * row.group.budget.epsilon


@examples(25)
@given(groups=FEDERATION)
def test_theorem_1_holds_for_exact_plans(groups: list[Group]) -> None:
    """Noise never rises; the Rényi spending of a round never falls while saving and is constant while spending."""
    made = plan(groups, rounds=12)
    for row in made.groups:
        sigma = np.array(row.noise_multiplier)
        assert np.all(np.diff(sigma) <= 1e-7 * sigma[:-1])
        assert row.group.transition is not None
        first = row.group.transition - 1
        assert np.all(sigma[first:] == sigma[first])
        spent = rdp(np.array(row.sampling_rate), sigma, [2.0, 8.0])
        assert np.all(np.diff(spent, axis=0) >= -1e-6 * spent[:-1])


@examples(25)
@given(groups=FEDERATION, clip=st.floats(0.1, 1000.0))
def test_every_client_faces_its_own_noise_multiplier(groups: list[Group], clip: float) -> None:
    """The heart of the system: c_n σ_n = c σ for everyone, the mean clip norm is c, and q^t averages over clients."""
    made = plan(groups, rounds=12, clip_norm=clip)
    counts = np.array([row.group.clients for row in made.groups])
    sigma = np.array([row.noise_multiplier for row in made.groups])
    norms = np.array([row.clip_norm for row in made.groups])
    rates = np.array([row.sampling_rate for row in made.groups])
    clients = np.repeat(np.arange(len(groups)), counts)
    assert norms * sigma == pytest.approx(np.broadcast_to(clip * np.array(made.round_noise_multiplier), sigma.shape))
    assert norms[clients].mean(axis=0) == pytest.approx(clip)
    assert made.round_noise_multiplier == pytest.approx(1.0 / (1.0 / sigma[clients]).mean(axis=0))
    assert made.mean_sampling_rate == pytest.approx(rates[clients].mean(axis=0))


def test_pld_planning_buys_what_method_md_says(exact: Plan) -> None:
    strict = GROUPS[:1]
    made = plan(strict, rounds=25, accountant="pld")
    row = made.groups[0]
    assert 0.999 * 10.0 <= row.epsilon_spent[-1] <= 10.0
    assert all(np.diff(row.noise_multiplier) <= 1e-6)
    gain = 1.0 - row.noise_multiplier[-1] / exact.groups[0].noise_multiplier[-1]
    assert 0.04 < gain < 0.09
    made.verify()


ALL_IN = tuple(replace(group, saving_rate=None, transition=None) for group in GROUPS)
PRIVATE = ["dp-fedavg", "idp-fedavg", "adaptive-clipping", "spend-as-you-go", "shaped"]


@pytest.mark.parametrize("method", PRIVATE)
def test_gaussian_planning_is_exact_at_rate_1(method: str, tmp_path: Path) -> None:
    made = judged(plan(ALL_IN, 25, method=method, accountant="gaussian", spending_rate=1.0))
    for row in made.groups:
        assert row.epsilon_spent[-1] <= row.group.budget.epsilon
        square = sum(sigma**-2 for sigma in row.noise_multiplier)
        assert square <= gaussian_allowance(row.group.budget.epsilon, 1e-5)
        assert gaussian_epsilon(square**0.5, 1e-5) == pytest.approx(row.group.budget.epsilon, rel=1e-8)
        assert row.epsilon_spent_pld == pytest.approx(row.group.budget.epsilon, rel=1e-3)
    made.verify()
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    lost: dict[str, Sequence[Charge]] = {"middle": [Charge(1.0, 3.0, 2)]}
    rest = made.replan(10, lost)
    rest.verify()
    assert rest.groups[1].noise_multiplier[-1] > made.groups[1].noise_multiplier[-1]
    assert rest.groups[1].epsilon_spent[-1] == pytest.approx(rest.groups[1].group.budget.epsilon, rel=1e-8)
    if method == "idp-fedavg":
        assert noise(made, 1, 25) == pytest.approx([2.499, 2.499], abs=5e-4)


@pytest.mark.parametrize("delta", [1e-5, 1e-16])
def test_a_gaussian_plan_without_enough_noise_does_not_verify(delta: float) -> None:
    made = plan([Group("a", 5, Budget(5.0, delta))], 4, method="idp-fedavg", accountant="gaussian", spending_rate=1.0)
    made.verify()
    (row,) = made.groups
    louder = replace(row, noise_multiplier=tuple(0.9999 * sigma for sigma in row.noise_multiplier))
    with pytest.raises(VerificationError, match="over budget"):
        replace(made, groups=(louder,)).verify()


def test_gaussian_planning_by_the_papers_rule_pays_for_every_conversion() -> None:
    made = plan(ALL_IN, 10, method=SpendAsYouGo("paper"), accountant="gaussian", spending_rate=1.0)
    made.verify()
    assert all(row.epsilon_spent[-1] < 0.9 * row.group.budget.epsilon for row in made.groups)


def test_gaussian_planning_needs_everybody_in_every_round() -> None:
    with pytest.raises(InputError, match=r"spending_rate = 0\.9 must be 1 with accountant = 'gaussian'"):
        plan(ALL_IN, 25, accountant="gaussian")
    with pytest.raises(InputError, match=r"group 'strict': saving_rate = 0\.5 must be 1 with accountant = 'gaussian'"):
        plan(GROUPS, 25, accountant="gaussian", spending_rate=1.0)
    history = {"strict": [Charge(0.5, 3.0)]}
    with pytest.raises(InputError, match=r"sampling_rate = 0\.5 must be 1 with accountant = 'gaussian'"):
        plan(with_history(ALL_IN, history), 25, accountant="gaussian", spending_rate=1.0)
    plan(GROUPS, 25, method="idp-fedavg", accountant="gaussian", spending_rate=1.0).verify()  # which never saves


@pytest.mark.parametrize("method", [*PRIVATE, SpendAsYouGo("paper")])
def test_renyi_planning_holds_the_filter_of_every_budget(method: str | Planner, tmp_path: Path) -> None:
    """Each group by the one order of its budget, with Opacus' curves."""
    made = plan(ANY_LENGTH, 6, method=method, accountant="renyi")
    assert made.orders == ()
    for row in made.groups:
        budget = row.group.budget
        a = filter_order(budget.epsilon, budget.delta)
        spent = sum(float(compute_rdp(q=q, noise_multiplier=sigma, steps=n, orders=a)) for q, sigma, n in row.charges())
        bound = budget.epsilon - np.log((a - 1) / a) + (np.log(budget.delta) + np.log(a)) / (a - 1)
        assert spent <= bound * (1.0 + 1e-6)
        if made.composition == "exact":
            assert spent >= 0.999 * bound
        assert row.epsilon_spent[-1] == pytest.approx(epsilon_from_rdp([a], [spent], 1e-5), rel=1e-6)
    made.verify()
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    rest = made.replan(3)
    for old, new in zip(made.groups, rest.groups, strict=True):
        if made.composition == "exact":
            assert new.noise_multiplier == pytest.approx(old.noise_multiplier[3:], rel=1e-6)


def test_groups_have_the_orders_of_their_own_budgets() -> None:
    together = plan(ANY_LENGTH, 8, accountant="renyi")
    for group, row in zip(ANY_LENGTH, together.groups, strict=True):
        assert plan([group], 8, accountant="renyi").groups[0].noise_multiplier == row.noise_multiplier
        rdp_row = plan([group], 8).groups[0]
        price = np.array(row.noise_multiplier) / np.array(rdp_row.noise_multiplier)
        assert np.all((price >= 1.0 - 1e-8) & (price < 1.02))


def test_an_accountant_itself_serves_all_groups_and_stands_in_the_plan(tmp_path: Path) -> None:
    """As for a run that may spend a part of lifetime budgets, whose order is another."""
    made = plan(ANY_LENGTH, 8, accountant=renyi_account(2.5))
    assert (made.accountant, made.orders) == ("renyi", (2.5,))
    made.verify()
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    assert made.replan(3).orders == (2.5,)
    assert made.groups[0].noise_multiplier[0] > plan(ANY_LENGTH, 8, accountant="renyi").groups[0].noise_multiplier[0]


def test_a_new_plan_meets_every_account() -> None:
    """Members of a group whose accounts are kept by other accountants than the plan: the most noise of all of them."""
    made = plan([Group("all", 4, Budget(8.0))], 10, method="idp-fedavg", spending_rate=1.0)
    (row,) = made.groups
    done = row.charges(4)
    here = Standing("this run", row.group.budget, done)
    accounts = {
        "ada": Standing("ada", Budget(7.0), (*done, Charge(1.0, 4.0)), GaussianAccountant()),
        "bob": Standing("bob", Budget(8.7), (*done, Charge(0.5, 1.0)), renyi_account(filter_order(8.7, 1e-5))),
    }
    alone = {}
    for name, standing in accounts.items():
        again = replanned(made, 4, {"all": [here, standing]})
        sigma = again.groups[0].noise_multiplier[4:]
        spent = compose(standing.account, [*standing.charges, *(Charge(1.0, s) for s in sigma)])  # type: ignore[arg-type]
        assert spent.epsilon(1e-5)[0] <= standing.budget.epsilon
        assert spent.epsilon(1e-5)[0] == pytest.approx(standing.budget.epsilon, rel=1e-6)
        assert (again.accountant, again.orders) == (made.accountant, made.orders)
        again.verify()
        alone[name] = sigma[0]
    both = replanned(made, 4, {"all": [here, *accounts.values()]})
    assert both.groups[0].noise_multiplier[4] == max(alone.values())


def test_uniform_methods_reduce_as_they_should() -> None:
    dp = plan(GROUPS, rounds=25, method="dp-fedavg", clip_norm=250.0)
    idp = plan(GROUPS, rounds=25, method="idp-fedavg")
    never = plan([replace(g, transition=1) for g in GROUPS], rounds=25)
    assert {row.group.budget.epsilon for row in dp.groups} == {10.0}
    assert [row.clip_norm[0] for row in dp.groups] == pytest.approx([250.0] * 3)
    assert [r.noise_multiplier for r in idp.groups] == [r.noise_multiplier for r in never.groups]
    assert idp.groups[0].noise_multiplier == dp.groups[0].noise_multiplier
    adaptive = plan(GROUPS, rounds=25, method="adaptive-clipping", clip_norm=250.0)
    assert adaptive.groups == dp.groups


def test_fedavg_is_a_plan_without_privacy() -> None:
    made = plan(ANY_LENGTH, rounds=3, method="fedavg")
    for row in made.groups:
        assert set(row.noise_multiplier) == {0.0}
        assert set(row.clip_norm) == {np.inf} == set(row.epsilon_spent)
        assert set(row.sampling_rate) == {0.9}
    assert made.round_noise_multiplier == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("shape", [*SHAPES, [3.0, 1.0, 2.0, 2.0]])
def test_shaped_noise_keeps_its_shape_and_spends_everything(shape: str | list[float]) -> None:
    made = plan(ANY_LENGTH, rounds=4, method=Shaped(shape, end_ratio=0.25))
    for row in made.groups:
        relative = np.array(row.noise_multiplier) / row.noise_multiplier[0]
        assert relative[-1] == pytest.approx(0.25 if isinstance(shape, str) else 2.0 / 3.0)
        assert row.group.budget.epsilon * 0.999 <= row.epsilon_spent[-1] <= row.group.budget.epsilon
    made.verify()


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


def test_defaults_save_until_the_middle() -> None:
    saver = plan([Group("g", 1, Budget(5.0), saving_rate=0.5)], rounds=25).groups[0]
    assert saver.group.transition == 13
    spender = plan([Group("g", 1, Budget(5.0))], rounds=25).groups[0]
    assert (spender.group.saving_rate, spender.group.transition) == (0.9, 1)


def test_many_groups_are_planned_as_one_by_one() -> None:
    groups = [
        Group(f"g{i}", 1, Budget(e), saving_rate=0.3 + 0.004 * i, transition=1 + i % 40)
        for i, e in enumerate(np.geomspace(0.3, 40.0, 150).tolist())
    ]
    made = plan(groups, rounds=40)
    for i in (0, 17, 77, 120, 149):
        alone = plan([groups[i]], rounds=40)
        assert made.groups[i].noise_multiplier == pytest.approx(alone.groups[0].noise_multiplier, rel=1e-7)
        assert made.groups[i].epsilon_spent == pytest.approx(alone.groups[0].epsilon_spent, rel=1e-7)
    assert made.orders == ORDERS


@examples(25)
@given(
    rate=st.floats(-2.0, 0.0).map(lambda x: 10.0**x),
    slowness=st.floats(0.001, 1.0),
    rounds=st.integers(17, 60),
    late=st.floats(0.0, 1.0),
    epsilon=st.floats(0.1, 30.0),
    delta=st.sampled_from([1e-9, 1e-5, 1e-2, 0.1]),
    composition=st.sampled_from(["exact", "paper"]),
)
def test_any_rate_any_delta_no_overspending_and_nothing_left_over(
    rate: float, slowness: float, rounds: int, late: float, epsilon: float, delta: float, composition: str
) -> None:
    """All orders at once judge what the planner found at few of them."""
    group = Group("g", 3, Budget(epsilon, delta), rate * slowness, 1 + int(late * (rounds - 1)))
    row = plan([group], rounds, spending_rate=rate, method=SpendAsYouGo(composition)).groups[0]
    curves = np.cumsum(rdp(np.array(row.sampling_rate), np.array(row.noise_multiplier), ORDERS), axis=0)
    spent = [epsilon_from_rdp(list(ORDERS), curve, delta) for curve in curves.tolist()]
    assert max(spent) <= epsilon
    assert row.epsilon_spent == pytest.approx(spent, rel=1e-9, abs=1e-12)
    if composition == "exact" and row.noise_multiplier[-1] > 0.1001:
        assert spent[-1] >= 0.999 * epsilon


def test_a_slow_saver_with_a_late_transition() -> None:
    """Here the best order falls by more than the orders the search first looks at."""
    made = plan([Group("a", 10, Budget(2.0), 0.01, 90)], 100, spending_rate=0.05)
    assert made.groups[0].noise_multiplier[-1] == pytest.approx(1.0474, abs=1e-4)


def test_down_to_its_smallest_delta_pld_plans_and_judges() -> None:
    group = Group("a", 10, Budget(5.0, SMALLEST_DELTA), 0.4, 4)
    plan([group], 6).verify()
    plan([group], 6, accountant="pld").verify()


@pytest.mark.parametrize("delta", [1e-13, 1e-16, 1e-20])
def test_below_it_pld_is_refused_and_rdp_judges(delta: float) -> None:
    group = Group("a", 10, Budget(5.0, delta), 0.4, 4)
    with pytest.raises(InputError, match=r"delta = 1e-\d\d must be at least 1e-12 with accountant = 'pld'"):
        plan([group], 6, accountant="pld")
    made = judged(plan([group], 6))
    assert made.groups[0].epsilon_spent_pld is None
    assert epsilon_by_pld(made.groups[0]) == np.inf
    assert made.verify()[0] == pytest.approx(made.groups[0].epsilon_spent[-1], rel=1e-12)
    planned_by_pld = replace(made, accountant="pld", orders=())
    with pytest.raises(VerificationError, match="epsilon_spent"):
        planned_by_pld.verify()


@pytest.mark.parametrize("rounds", [900, 1200])
def test_where_pld_does_not_vouch_for_a_sound_plan_rdp_does(rounds: int) -> None:
    """What PLD takes off from δ for so many rounds is most of it, and then more than all."""
    made = judged(plan([Group("a", 10, Budget(8.0, 1e-12))], rounds))
    assert epsilon_by_pld(made.groups[0]) > 8.0
    ((epsilon, judge),) = verify(made)
    assert judge == "RDP"
    (charge,) = made.groups[0].charges()
    release = dp_accounting.PoissonSampledDpEvent(0.9, dp_accounting.GaussianDpEvent(charge.noise_multiplier))
    oracle = GooglesRdpAccountant(ORDERS).compose(dp_accounting.SelfComposedDpEvent(release, rounds))
    assert epsilon == pytest.approx(oracle.get_epsilon(1e-12), rel=1e-6)
    assert epsilon <= 8.0
    assert [verdict.judge for verdict in verify(plan(ANY_LENGTH, 6))] == ["PLD"] * 3


@pytest.mark.parametrize("orders", [ORDERS, (1.5,)])
def test_rdp_does_not_vouch_for_a_forged_plan(orders: tuple[float, ...]) -> None:
    """Less noise, with all the numbers that follow from it; the judge's orders are its own."""
    made = plan([Group("a", 10, Budget(8.0, 1e-12))], 1200)
    louder = replace(made.groups[0], noise_multiplier=tuple(0.999 * s for s in made.groups[0].noise_multiplier))
    forged = replace(made, orders=orders, groups=(louder,))
    stated = tuple(np.minimum(epsilons(forged, louder), 8.0).tolist())
    with pytest.raises(VerificationError, match=r"over budget: it spends epsilon = 8\.0\d* of 8\."):
        replace(forged, groups=(replace(louder, epsilon_spent=stated),)).verify()


@pytest.mark.parametrize("rate", [1e-3, 1e-7, 1e-300])
def test_tiny_rates_are_judged_in_no_time(rate: float) -> None:
    made = plan([Group("a", 10, Budget(1.0), rate, 5)], 10)
    assert epsilon_by_pld(made.groups[0]) < 1.0


def test_uniform_methods_know_one_composition(exact: Plan) -> None:
    made = plan(GROUPS, rounds=25, method="idp-fedavg")
    assert len(set(made.groups[0].noise_multiplier)) == 1
    assert made.composition == "exact"


def test_numbers_may_be_of_any_kind() -> None:
    group = Group("a", np.int64(10), Budget(10, np.float32(0.25)), np.float32(0.5), 2.0)  # type: ignore[arg-type]
    made = plan((g for g in [group]), np.int64(4), spending_rate=1)  # type: ignore[arg-type]
    assert made.groups[0].group == Group("a", 10, Budget(10.0, 0.25), 0.5, 2)
    assert made.to_json()


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


@pytest.mark.parametrize(
    "call",
    [
        lambda: plan([1], 4),  # type: ignore[list-item]
        lambda: plan([], 4),
        lambda: plan(GROUPS, 25, method=Shaped([1.0])),
        lambda: Shaped([1e-10] + [1.0] * 24),
        lambda: Shaped([]),
        lambda: Shaped("square"),
        lambda: SpendAsYouGo("both"),
        lambda: Shaped(end_ratio=1e300),
        lambda: plan([Group("a", 1, Budget(0.1))], 25, method=Shaped(end_ratio=1e4)),
        lambda: Budget(10**400),
        lambda: Budget("10"),  # type: ignore[arg-type]
        lambda: Budget(True),
        lambda: Group("", 1, Budget(1.0)),
        lambda: Group("a", 1.5, Budget(1.0)),  # type: ignore[arg-type]
        lambda: Group("a", 1, 3.0),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_an_input_error(call: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        call()


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


def test_planners_of_ours_are_values_with_names() -> None:
    assert plan(GROUPS, 25, method=SpendAsYouGo()) == plan(GROUPS, 25)
    assert plan(GROUPS, 25, method=Uniform()) == plan(GROUPS, 25, method="idp-fedavg")
    assert plan(ANY_LENGTH, 6, method=Shaped()) == plan(ANY_LENGTH, 6, method="shaped")
    assert plan(GROUPS, 25, method=SpendAsYouGo("paper")).composition == "paper"


@pytest.mark.parametrize("method", [*METHODS, *COMPARED])
def test_the_registry_tells_what_plans_do(method: str) -> None:
    about = COMPARED[method]
    made = plan(ANY_LENGTH, 6, method=about.written)
    assert made.is_private == about.is_private == (min(made.groups[0].noise_multiplier) > 0.0)
    assert about.same_noise == (len({row.noise_multiplier for row in made.groups}) == 1 and about.is_private)
    assert (about.rates == "saving") == (len(set(made.groups[0].sampling_rate)) == 2)
    assert made.about == METHODS[about.written]


@pytest.mark.parametrize(
    ("rates", "noise", "sentence"),
    [
        (1.5, 1.0, "rates must be above 0 and at most 1"),
        ([0.5, np.nan, 0.5], 1.0, "rates must be above 0 and at most 1"),
        (
            [0.5, 0.5],
            1.0,
            "rates must be a number, one for each of the 3 rounds, or such a row for each of the 3 groups",
        ),
        (0.5, "loud", "relative_noise must be a number"),
        (0.5, [1.0, 0.0, 1.0], "relative_noise must be finite and above 0"),
        (0.5, [1.0, 1.0, 1e5], "relative_noise goes from 1 to 100000; a factor of 10000 is allowed"),
    ],
)
def test_a_setting_calibrates_rates_and_noise_only(rates: Any, noise: Any, sentence: str) -> None:
    groups = tuple(group.resolved(3, 0.9) for group in ANY_LENGTH)
    setting = Setting(groups, 3, 0.9, (RdpAccountant(),) * 3, 10.0, (1.0,) * 3)
    with pytest.raises(InputError, match=sentence):
        setting.calibrated(rates, noise)


def test_a_setting_calibrates_any_rows() -> None:
    """With what is spent before, and judged by all orders at once; only the ratios of noise matter."""
    before = Charge(0.3, 2.0, 4)
    groups = tuple(g.resolved(3, 0.9) for g in with_history(ANY_LENGTH, {"middle": [before]}))
    setting = Setting(groups, 3, 0.9, (RdpAccountant(),) * 3, 10.0, (1.0,) * 3)
    rates, noise = [[0.1, 0.5, 0.9], [0.9, 0.5, 0.1], [0.2, 0.2, 0.2]], [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [7.0] * 3]
    made = setting.calibrated(rates, noise)
    assert made.sampling_rate.tolist() == rates
    for i, group in enumerate(groups):
        charges = [*group.already_spent, *map(Charge, rates[i], made.noise_multiplier[i].tolist())]
        spent = np.sum([rdp(np.array([q]), np.array([sigma]), ORDERS)[0] * n for q, sigma, n in charges], axis=0)
        assert (
            0.999999 * group.budget.epsilon
            <= epsilon_from_rdp(list(ORDERS), spent.tolist(), 1e-5)
            <= group.budget.epsilon
        )
        assert made.noise_multiplier[i] / made.noise_multiplier[i, 0] == pytest.approx(np.array(noise[i]) / noise[i][0])
    assert setting.calibrated(rates, np.array(noise) * 100.0).noise_multiplier == pytest.approx(made.noise_multiplier)


def test_clients_may_have_names_which_are_in_no_plan() -> None:
    named = plan([Group("strict", ["ada", "bob"], Budget(4.0)), Group("open", ["eve"], Budget(9.0))], 5)
    counted = plan([Group("strict", 2, Budget(4.0)), Group("open", 1, Budget(9.0))], 5)
    assert [row.group.members for row in named.groups] == [("ada", "bob"), ("eve",)]
    assert (named, named.digest, named.to_json()) == (counted, counted.digest, counted.to_json())
    assert "ada" not in named.to_json() + repr(named) + named._repr_html_()
    assert named.replan(2).groups[0].group.members == ("ada", "bob")


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        (lambda: [Group("a", ["ada", "ada"], Budget(1.0))], "the client 'ada' is there 2 times"),
        (lambda: [Group("a", ["ada"], Budget(1.0)), Group("b", ["ada"], Budget(2.0))], "the client 'ada' is there 2"),
        (lambda: [Group("a", ["ada", " "], Budget(1.0))], "a client's name is ' '"),
        (lambda: [Group("a", ["ada", 7], Budget(1.0))], "a client's name is 7"),  # type: ignore[list-item]
        (lambda: [Group("a", 3, Budget(1.0), members=["ada"])], "members has 1 names; there must be one for each of 3"),
        (lambda: [Group("a", [], Budget(1.0))], "clients = 0 must be a whole number"),
        (lambda: [Group("a", "ada", Budget(1.0))], "clients = 'ada' must be a whole number"),
    ],
)
def test_names_of_clients_are_checked(groups: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plan(groups(), 3)


@examples(40)
@given(
    budgets=st.dictionaries(st.text(min_size=1).filter(str.strip), st.floats(0.01, 100.0), min_size=1),
    levels=st.integers(1, 40),
)
def test_grouped_gives_nobody_more_than_the_own_budget(budgets: dict[str, float], levels: int) -> None:
    groups = grouped(budgets, levels=levels, saving_rate=0.3)
    assert sorted(name for group in groups for name in group.members) == sorted(budgets)
    lost = 1.0 - (min(budgets.values()) / max(budgets.values())) ** (1.0 / levels)
    for group in groups:
        assert group.clients == len(group.members)
        assert group.saving_rate == 0.3
        for name in group.members:
            assert group.budget.epsilon <= budgets[name]
            assert group.budget.epsilon >= budgets[name] * (1.0 - lost) * (1.0 - 1e-9)


@pytest.mark.parametrize(
    ("budgets", "sentence"),
    [
        ({}, "at least one client"),
        ([1.0], "at least one client"),
        ({"ada": -1.0}, "client 'ada': epsilon = -1.0"),
        ({"ada": "much"}, "client 'ada': epsilon = 'much'"),
        ({"ada": 1.0, "bob": Budget(1.0, 1e-6)}, "delta = 1e-06, 1e-05 must be one for all"),
    ],
)
def test_grouped_refuses_what_is_no_budget(budgets: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        grouped(budgets)
