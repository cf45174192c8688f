"""The planners: the reference numbers, the theory's properties, and a page of plain Python that must agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    plan,
)
from nestegg.accounting import (
    ORDERS,
    RdpAccountant,
    rdp,
)
from nestegg.planning import COMPARED, METHODS, SHAPES, epsilon_by_pld
from nestegg.planning.curves import Pace
from tests.conftest import ANY_LENGTH, GROUPS, with_history
from tests.examples import examples
from tests.oracles import epsilon_from_rdp, spend_as_you_go_by_bisection

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


@pytest.mark.no_cover
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


@pytest.mark.no_cover
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


@pytest.mark.no_cover
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


@pytest.mark.no_cover
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
    assert about.idea


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
    setting = Setting(groups, 3, 0.9, (RdpAccountant(),) * 3, 10.0, Pace((1.0,) * 3))
    with pytest.raises(InputError, match=sentence):
        setting.calibrated(rates, noise)


def test_a_setting_calibrates_any_rows() -> None:
    """With what is spent before, and judged by all orders at once; only the ratios of noise matter."""
    before = Charge(0.3, 2.0, 4)
    groups = tuple(g.resolved(3, 0.9) for g in with_history(ANY_LENGTH, {"middle": [before]}))
    setting = Setting(groups, 3, 0.9, (RdpAccountant(),) * 3, 10.0, Pace((1.0,) * 3))
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
