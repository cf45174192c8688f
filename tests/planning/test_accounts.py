"""Plans by every accountant, and who judges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant as GooglesRdpAccountant
from opacus.accountants.analysis.rdp import compute_rdp

from nestegg import (
    Budget,
    Charge,
    Group,
    InputError,
    Plan,
    SpendAsYouGo,
    VerificationError,
    load_plan,
    plan,
    save_plan,
)
from nestegg.accounting import (
    ORDERS,
    SMALLEST_DELTA,
    GaussianAccountant,
    compose,
    filter_order,
    gaussian_allowance,
    renyi_account,
)
from nestegg.accounting.rdp import RdpAccountant
from nestegg.ledger import Ledger
from nestegg.planning import Planner, Standing, epsilon_by_pld, judged, replanned, verify
from nestegg.planning.accounts import ACCOUNTANTS, Accounting
from nestegg.planning.judge import epsilons
from tests.conftest import ANY_LENGTH, GROUPS, with_history
from tests.oracles import epsilon_from_rdp, gaussian_epsilon

ALL_IN = tuple(replace(group, saving_rate=None, transition=None) for group in GROUPS)
PRIVATE = ["dp-fedavg", "idp-fedavg", "adaptive-clipping", "spend-as-you-go", "shaped"]


def noise(made: Plan, *rounds: int) -> list[float]:
    return [made.groups[0].noise_multiplier[t - 1] for t in rounds]


def test_pld_planning_buys_what_method_md_says(exact: Plan) -> None:
    strict = GROUPS[:1]
    made = plan(strict, rounds=25, accountant="pld")
    row = made.groups[0]
    assert 0.999 * 10.0 <= row.epsilon_spent[-1] <= 10.0
    assert all(np.diff(row.noise_multiplier) <= 1e-6)
    gain = 1.0 - row.noise_multiplier[-1] / exact.groups[0].noise_multiplier[-1]
    assert 0.04 < gain < 0.09
    made.verify()


@pytest.mark.parametrize("method", PRIVATE)
def test_gaussian_planning_is_exact_at_rate_1(method: str, tmp_path: Path) -> None:
    made = judged(plan(ALL_IN, 25, method=method, accountant="gaussian", spending_rate=1.0))
    for row in made.groups:
        assert row.epsilon_spent[-1] <= row.group.budget.epsilon
        square = sum(sigma**-2 for sigma in row.noise_multiplier)
        assert square <= gaussian_allowance(row.group.budget.epsilon, 1e-5)[0]
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
        plan(ALL_IN, 25, method="spend-as-you-go", accountant="gaussian")
    with pytest.raises(InputError, match=r"group 'strict': saving_rate = 0\.5 must be 1 with accountant = 'gaussian'"):
        plan(GROUPS, 25, method="spend-as-you-go", accountant="gaussian", spending_rate=1.0)
    history = {"strict": [Charge(0.5, 3.0)]}
    with pytest.raises(InputError, match=r"sampling_rate = 0\.5 must be 1 with accountant = 'gaussian'"):
        plan(with_history(ALL_IN, history), 25, method="spend-as-you-go", accountant="gaussian", spending_rate=1.0)
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
    made = judged(plan([Group("a", 10, Budget(8.0, 1e-12))], rounds, method="idp-fedavg"))
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
    made = plan([Group("a", 10, Budget(8.0, 1e-12))], 1200, method="spend-as-you-go")
    louder = replace(made.groups[0], noise_multiplier=tuple(0.999 * s for s in made.groups[0].noise_multiplier))
    forged = replace(made, orders=orders, groups=(louder,))
    stated = tuple(np.minimum(epsilons(forged, louder), 8.0).tolist())
    with pytest.raises(VerificationError, match=r"over budget: it spends epsilon = 8\.0\d* of 8\."):
        replace(forged, groups=(replace(louder, epsilon_spent=stated),)).verify()


@pytest.mark.parametrize("rate", [1e-3, 1e-7, 1e-300])
def test_tiny_rates_are_judged_in_no_time(rate: float) -> None:
    made = plan([Group("a", 10, Budget(1.0), rate, 5)], 10)
    assert epsilon_by_pld(made.groups[0]) < 1.0


def test_another_accountant_is_one_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rényi curves at whole orders only: planned, judged, saved, re-planned and paid without a line elsewhere."""
    orders = tuple(float(order) for order in range(2, 64))
    whole = RdpAccountant(orders, name="whole")
    entry = Accounting(
        label="RDP at whole orders",
        plans=lambda groups, rounds, spending_rate: [whole] * len(groups),
        states=lambda plan, row: whole,
        sees=lambda plan, charges: whole,
        orders=orders,
    )
    monkeypatch.setitem(ACCOUNTANTS, "whole", entry)
    made = plan(GROUPS, 25, accountant="whole")
    assert all(epsilon <= row.group.budget.epsilon for epsilon, row in zip(made.verify(), made.groups, strict=True))
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    made.replan(6).verify()
    small = plan([Group("all", 2, Budget(4.0))], 3, accountant="whole")
    with Ledger(tmp_path / "ledger.db") as ledger:
        books = ledger.begin("monday", small, ["ada", "bob"], unknown=[Budget(4.0)] * 2, rule="fixed")
        books.release(1, books.reserve(1), "first")
