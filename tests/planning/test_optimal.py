"""The computed schedule: no other lets less noise reach the model; what it is worth; what it refuses."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from nestegg import Budget, Charge, Group, GroupPlan, InputError, Optimal, Plan, Shaped, load_plan, plan, save_plan
from nestegg.accounting import ORDERS, Array, rdp
from nestegg.configuration.config import load_config
from nestegg.configuration.participants import make_plan
from nestegg.planning.consistency import check_plan
from nestegg.planning.curves import Pace, pace_of
from nestegg.planning.influence import FORMAT, fitted_memory, forgetting, read_influence, resampled
from nestegg.planning.planners.optimal import FLOOR
from nestegg.planning.reaching import reaching_noise
from nestegg.planning.remarks import remarks
from tests.conftest import ANY_LENGTH, GROUPS, Run
from tests.examples import examples
from tests.oracles import rdp_by_quadrature

ROUNDS = 25


@dataclass(frozen=True)
class _Rows:
    """Noise of each group in proportion to a row of its own."""

    noise: tuple[tuple[float, ...], ...]

    def schedule(self, setting: Any) -> Any:
        return setting.calibrated(setting.spending_rate, self.noise)


def variance(made: Plan, matters: Array) -> float:
    """What reaches the model: Σ (a_t σ^t / q^t)², a_t being given."""
    noise = np.array(made.round_noise_multiplier) / np.array(made.mean_sampling_rate)
    return float(np.square(matters * noise).sum())


@examples(20)
@given(
    st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(1, 50), st.floats(1.0, 30.0)), min_size=1, max_size=3),
)
def test_no_schedule_of_any_client_does_better(matters: list[float], clients: list[tuple[int, float]]) -> None:
    """Against a numerical optimiser over the noise of all groups and rounds, without sampling."""
    a, counts = np.array(matters), np.array([count for count, _ in clients], np.float64)
    groups = [Group(f"g{i}", count, Budget(epsilon)) for i, (count, epsilon) in enumerate(clients)]
    made = plan(groups, len(a), method=Optimal(memory=0.0), local=matters)
    inverse = np.array([1.0 / np.array(row.noise_multiplier) for row in made.groups])
    allowed = np.square(inverse).sum(axis=1, keepdims=True)

    def objective(free: Array) -> float:
        y = np.exp(free.reshape(inverse.shape))
        y *= np.sqrt(allowed / np.square(y).sum(axis=1, keepdims=True))
        return float(np.log(np.square(a / (counts / counts.sum() @ y)).sum()))

    start = np.log(inverse) + np.random.default_rng(0).normal(0.0, 0.3, inverse.shape)
    best = minimize(objective, start.ravel(), method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-15})
    assert objective(np.log(inverse).ravel()) <= best.fun + 1e-6


@pytest.mark.parametrize("exponent", [-1.0, -1 / 3])
def test_other_exponents_do_worse(exponent: float) -> None:
    pace = pace_of(None, ROUNDS)
    a = np.maximum(np.array(pace.clip_scale), FLOOR)
    options: dict[str, Any] = {"spending_rate": 1.0, "accountant": "gaussian"}
    best = plan(ANY_LENGTH, ROUNDS, method=Optimal(memory=0.0), local=pace)
    other = plan(ANY_LENGTH, ROUNDS, method=Shaped(tuple(a**exponent)), **options)
    assert variance(other, a) > 1.03 * variance(best, a)


@pytest.mark.parametrize("memory", [0.0, 2.0, 4.0])
def test_uniform_spending_costs_one_plus_the_squared_variation(memory: float) -> None:
    pace = pace_of(None, ROUNDS)
    a = forgetting(memory, pace.learning_rate) * np.array(pace.clip_scale)
    best = plan(GROUPS, ROUNDS, method=Optimal(memory=memory))
    even = plan(GROUPS, ROUNDS, method="idp-fedavg", spending_rate=1.0, accountant="gaussian")
    assert variance(even, a) / variance(best, a) == pytest.approx(1.0 + (a.std() / a.mean()) ** 2, rel=1e-6)


def within_budget(shape: Array, rate: float, epsilon: float) -> Array:
    """Noise of this shape, scaled a little, whose releases to a sample have this ε by Rényi divergences."""
    orders = np.array([order for order in ORDERS if 1.5 < order < 20.0])  # those that decide here
    rest = np.log1p(-1.0 / orders) - (np.log(1e-5) + np.log(orders)) / (orders - 1.0)

    def over(scale: float) -> float:
        return float((rdp(rate, np.exp(scale) * shape, orders).sum(axis=0) + rest).min()) - epsilon

    return np.asarray(np.exp(brentq(over, -1.0, 1.0, xtol=1e-12)) * shape)


@pytest.mark.parametrize(("rate", "close"), [(0.9, 1.0006), (0.5, 1.006)])
@pytest.mark.parametrize("matters", [(1.0, 0.5, 0.1), (0.08, 0.3, 1.0)])
def test_where_clients_are_sampled_a_numerical_optimiser_finds_hardly_more(
    matters: tuple[float, ...], rate: float, close: float
) -> None:
    """Over the noise of all groups and rounds, by Rényi divergences: 0.03 to 0.05 % at 0.9, 0.3 to 0.5 % at 0.5."""
    a, epsilons, counts = np.array(matters), (4.0, 12.0), np.array([30.0, 10.0])
    groups = [Group(f"g{i}", int(counts[i]), Budget(epsilons[i])) for i in range(2)]
    made = plan(groups, len(a), method=Optimal(memory=0.0), local=matters, spending_rate=rate)
    assert made.accountant == "rdp"
    noise = np.array([row.noise_multiplier for row in made.groups])

    def objective(free: Array) -> float:
        rows = np.exp(free.reshape(noise.shape))
        scaled = np.array([within_budget(row, rate, epsilon) for row, epsilon in zip(rows, epsilons, strict=True)])
        return float(np.log(np.square(a / (counts / counts.sum() @ (1.0 / scaled))).sum()))

    ours = objective(np.log(noise).ravel())
    assert variance(made, a) * rate**2 == pytest.approx(np.exp(ours), rel=1e-4)
    start = np.log(noise) + np.random.default_rng(0).normal(0.0, 0.1, noise.shape)
    best = minimize(objective, start.ravel(), method="L-BFGS-B", options={"eps": 1e-6, "maxfun": 400})
    assert ours <= best.fun + np.log(close)


def google(row: GroupPlan) -> float:
    """ε by dp_accounting's own composition of privacy loss distributions, release by release."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for q, sigma in zip(row.sampling_rate, row.noise_multiplier, strict=True):
        accountant.compose(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)))
    return float(accountant.get_epsilon(row.group.budget.delta))


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({"spending_rate": 0.5}, 4),
        ({"spending_rate": 1.0}, 4),
        pytest.param({"method": Optimal(spare=0.3)}, 4, marks=pytest.mark.slow),
        pytest.param({"method": Optimal(memory=0.0), "spending_rate": 0.2}, 12, marks=pytest.mark.slow),
    ],
)
def test_plans_by_loss_distributions_keep_budgets_by_an_independent_accountant(
    options: dict[str, Any], rounds: int
) -> None:
    groups = [Group("strict", 3, Budget(2.0)), Group("open", 2, Budget(10.0))]
    made = plan(groups, rounds, accountant="pld", **{"method": "optimal"} | options)
    for row in made.groups:
        assert row.group.budget.epsilon * (1.0 - 2e-3) < google(row) <= row.group.budget.epsilon * (1.0 + 1e-6)


@pytest.mark.parametrize(
    ("rate", "close"),
    [(0.9, 1.0005), (0.5, 1.0005), pytest.param(0.2, 1.004, marks=pytest.mark.slow)],
)
def test_where_clients_are_sampled_no_change_of_one_group_helps(rate: float, close: float) -> None:
    """Rounds trade budget at the order that decides: what a first-order change could gain is nearly nothing."""
    pace = pace_of(None, ROUNDS)
    a = forgetting(2.0, pace.learning_rate) * np.array(pace.clip_scale)
    groups = [replace(group, saving_rate=None) for group in ANY_LENGTH]
    made = plan(groups, ROUNDS, method=Optimal(), spending_rate=rate)
    rng = np.random.default_rng(1)
    for _ in range(4):
        turned = np.array([row.noise_multiplier for row in made.groups]) * np.exp(rng.normal(0.0, 0.05, (3, ROUNDS)))
        other = plan(groups, ROUNDS, method=_Rows(tuple(map(tuple, turned))), spending_rate=rate)
        assert variance(made, a) < close * variance(other, a)


@examples(15)
@given(st.floats(0.02, 0.98), st.floats(0.01, 1.0), st.floats(0.8, 8.0), st.floats(1.5, 20.0))
def test_sampling_less_is_no_way_to_save(low: float, step: float, v: float, alpha: float) -> None:
    """RDP_α(q, q v) falls as q rises: with the same noise in the mean update, whoever takes part more pays less."""
    high = min(1.0, low + step * (1.0 - low))
    assert rdp(high, high * v, [alpha])[0] <= rdp(low, low * v, [alpha])[0] * (1.0 + 1e-9)


@pytest.mark.parametrize(("q", "v", "alpha"), [(0.3, 2.0, 3.0), (0.7, 1.2, 8.0)])
def test_the_theorem_by_quadrature(q: float, v: float, alpha: float) -> None:
    charges = [rdp_by_quadrature(rate, rate * v, alpha) for rate in (q, q + 0.1, 0.99)]
    assert charges == sorted(charges, reverse=True)


def bowl(made: Plan, pace: Pace, curvature: float, rng: np.random.Generator, runs: int) -> float:
    """The error of the last model of gradient descent on a quadratic bowl whose updates carry a plan's noise."""
    x = np.zeros(runs)
    for t, rate in enumerate(pace.learning_rate):
        noise = made.clip_norm * rate * made.round_noise_multiplier[t] / (made.mean_sampling_rate[t] * made.clients)
        x = (1.0 - rate * curvature) * x + noise * rng.standard_normal(runs)
    return float(np.square(x).mean())


@pytest.mark.parametrize("method", ["idp-fedavg", "spend-as-you-go", "optimal"])
def test_on_a_bowl_the_final_error_is_what_the_law_says(method: str) -> None:
    pace, curvature = Pace(tuple(0.3 * rate for rate in pace_of(None, ROUNDS).learning_rate)), 0.8
    shrinks = 1.0 - curvature * np.array(pace.learning_rate)
    kept = np.array([shrinks[t + 1 :].prod() for t in range(ROUNDS)])
    how = Optimal(influence=tuple(kept)) if method == "optimal" else method
    made = plan(GROUPS, ROUNDS, method=how, local=pace)
    predicted = float(reaching_noise(made, pace, kept).sum())
    assert bowl(made, pace, curvature, np.random.default_rng(2), 20_000) == pytest.approx(predicted, rel=0.04)
    if method != "optimal":
        best = plan(GROUPS, ROUNDS, method=Optimal(influence=tuple(kept)), local=pace)
        assert reaching_noise(best, pace, kept).sum() < 0.95 * predicted


def test_everybody_has_the_same_shape_and_nothing_is_left() -> None:
    made = plan(GROUPS, ROUNDS, method="optimal")
    assert (made.accountant, made.spending_rate) == ("gaussian", 1.0)
    ratios = [np.array(row.noise_multiplier) / row.noise_multiplier[0] for row in made.groups]
    assert np.allclose(ratios, ratios[0])
    for row, epsilon in zip(made.groups, made.verify(), strict=True):
        assert row.group.budget.epsilon * (1 - 1e-6) < epsilon <= row.group.budget.epsilon * (1 + 1e-8)
        assert {*row.sampling_rate} == {1.0}


@pytest.mark.parametrize("accountant", ["rdp", "renyi", "gaussian"])
def test_it_plans_and_replans_from_any_history(accountant: str) -> None:
    rate = 1.0 if accountant == "gaussian" else 0.8
    spent = (Charge(rate, 6.0, 3),)
    groups = [Group("old", 5, Budget(10.0), already_spent=spent), Group("new", 5, Budget(10.0))]
    made = plan(groups, 8, method="optimal", accountant=accountant, spending_rate=rate)
    assert made.groups[0].noise_multiplier[0] > made.groups[1].noise_multiplier[0]
    rest = made.replan(3, {"new": [Charge(rate, 5.0)]})
    assert rest.verify()
    for row, old in zip(rest.groups, made.groups, strict=True):
        ratio = np.array(row.noise_multiplier) / np.array(old.noise_multiplier[3:])
        assert np.allclose(ratio, ratio[0])
    assert rest.parameters == made.parameters == {"memory": 2.0, "influence": None, "spare": 0.0}


def test_a_round_that_hardly_matters_has_a_floor() -> None:
    made = plan(ANY_LENGTH, 3, method=Optimal(memory=0.0), local=[1.0, 1e-9, 1.0])
    noise = made.groups[0].noise_multiplier
    assert noise[1] / noise[0] == pytest.approx(FLOOR**-0.5)


def test_sparing_work_costs_noise() -> None:
    a = forgetting(2.0, pace_of(None, ROUNDS).learning_rate) * np.array(pace_of(None, ROUNDS).clip_scale)
    whole, spared = (plan(GROUPS, ROUNDS, method=Optimal(spare=spare), accountant="rdp") for spare in (0.0, 0.3))
    assert np.mean(spared.mean_sampling_rate) == pytest.approx(0.7, abs=1e-6)
    assert spared.mean_sampling_rate[int(np.argmax(a))] == pytest.approx(1.0)
    assert variance(whole, a) < variance(spared, a)


def test_plan_files_say_how_a_plan_was_computed(tmp_path: Path) -> None:
    made = plan(ANY_LENGTH, 3, method=Optimal(influence=[0.2, 0.5, 1.0]))
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    assert made.parameters["influence"] == [0.2, 0.5, 1.0]
    assert "influence" in made.title


def influence_file(folder: Path, values: Any = (0.2, 0.5, 1.0), **changes: Any) -> Path:
    path = folder / "influence.json"
    path.write_text(json.dumps({"format": FORMAT, "influence": list(values)} | changes))
    return path


def test_a_measured_curve_is_read_resampled_and_fitted(tmp_path: Path) -> None:
    path = influence_file(tmp_path)
    assert Optimal(influence=str(path)) == Optimal(influence=(0.2, 0.5, 1.0))
    assert resampled(np.array([0.2, 0.5, 1.0]), 6).tolist() == pytest.approx([0.2, 0.275, 0.425, 0.625, 0.875, 1.0])
    pace = pace_of(None, 10)
    assert fitted_memory(tuple(forgetting(3.3, pace.learning_rate)), pace) == pytest.approx(3.3, abs=0.01)
    assert plan(ANY_LENGTH, 6, method=Optimal(influence=str(path))).rounds == 6


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"memory": -1.0}, "memory = -1.0 must be a number from 0 on"),
        ({"memory": float("nan")}, "memory = nan must be a number from 0 on"),
        ({"spare": 1.0}, "spare = 1.0 must be at least 0 and below 1"),
        ({"influence": [0.0, 0.0]}, "influence must be numbers from 0 on, not all of them 0"),
        ({"influence": [0.5, float("inf")]}, "influence must be numbers from 0 on"),
        ({"influence": ["much"]}, "influence must be a file of `nestegg influence`, or a number for each round"),
        ({"influence": "nowhere.json"}, "influence = 'nowhere.json' cannot be read: No such file or directory"),
    ],
)
def test_bad_parameters_are_one_sentence(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Optimal(**parameters)


@pytest.mark.parametrize("text", ["{", "[1]", '{"format": "other", "influence": [1]}', '{"influence": [1.0]}'])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "influence.json").write_text(text)
    with pytest.raises(InputError, match="is damaged"):
        read_influence(tmp_path / "influence.json")


def test_the_gaussian_accountant_is_refused_where_clients_are_sampled() -> None:
    with pytest.raises(InputError, match="must be 1 with accountant = 'gaussian'"):
        plan(ANY_LENGTH, 5, method="optimal", spending_rate=0.9, accountant="gaussian")
    with pytest.raises(InputError, match="must be 1 with accountant = 'gaussian'"):
        plan(ANY_LENGTH, 5, method=Optimal(spare=0.5), accountant="gaussian")


def test_nothing_to_gain_and_a_curve_of_another_length_are_said() -> None:
    even = plan(ANY_LENGTH, 4, method=Optimal(memory=0.0), local=[0.1] * 4)
    assert any("there is nothing to gain" in one for one in remarks(even))
    other = plan(ANY_LENGTH, 4, method=Optimal(influence=[0.2, 1.0]))
    assert any("influence has 2 numbers and the plan 4 rounds: it was resampled" in one for one in remarks(other))
    assert not any("gain" in one or "resampled" in one for one in remarks(plan(ANY_LENGTH, 4, method="optimal")))


def test_releases_to_a_sample_before_are_refused_by_the_gaussian_accountant() -> None:
    group = Group("old", 5, Budget(10.0), already_spent=(Charge(0.5, 6.0, 3),))
    with pytest.raises(InputError, match="must be 1 with accountant = 'gaussian'"):
        plan([group], 5, method="optimal", accountant="gaussian")
    spent = Group("spent", 5, Budget(1.0), already_spent=(Charge(1.0, 0.5, 3),))
    with pytest.raises(InputError, match="cannot be met by any noise, with what is spent already"):
        plan([spent], 5, method="optimal")


@pytest.mark.parametrize("method", ["optimal", "idp-fedavg", "fedavg"])
def test_who_never_saves_may_have_any_saving_rate_and_transition(method: str) -> None:
    plain = Group("all", 10, Budget(8.0))
    saver = replace(plain, saving_rate=0.8, transition=9)
    made, same = (plan([group], 5, method=method, spending_rate=0.5) for group in (saver, plain))
    assert made.digest == same.digest
    check_plan(made)
    with pytest.raises(InputError, match=r"saving_rate = 0\.8 must be above 0 and at most spending_rate = 0\.5"):
        plan([saver], 5, method="spend-as-you-go", spending_rate=0.5)
    with pytest.raises(InputError, match="transition = 9 must be a whole number, from 1 to 5"):
        plan([saver], 5, method="spend-as-you-go")


def test_nor_do_they_count_in_a_file_of_budgets(tmp_path: Path) -> None:
    (tmp_path / "budgets.csv").write_text("client,epsilon,saving_rate,transition\nada,8,0.8,9\nbob,8,0.8,9\n")
    for method, refused in (("optimal", False), ("spend-as-you-go", True)):
        keys = f'method = "{method}"\nspending_rate = 0.5\nbudgets_file = "budgets.csv"\n'
        (tmp_path / "config.toml").write_text(f"[training]\nrounds = 5\n[privacy]\n{keys}")
        config = load_config(tmp_path / "config.toml")
        with pytest.raises(InputError, match=r"line 2: saving_rate = '0\.8'") if refused else nullcontext():
            assert make_plan(config).groups[0].sampling_rate == (0.5,) * 5


CONFIG = """
[federation]
clients = 20
[training]
rounds = 6
[privacy]
method = "optimal"
{keys}
[[privacy.groups]]
name = "strict"
share = 0.5
epsilon = 5.0
saving_rate = 0.5
[[privacy.groups]]
name = "open"
share = 0.5
epsilon = 10.0
"""


def test_in_a_configuration(tmp_path: Path, run: Run) -> None:
    influence_file(tmp_path)
    path = tmp_path / "mine.toml"
    for keys, expected in (
        ("", ("gaussian", 1.0, 2.0)),
        ("memory = 0.5", ("gaussian", 1.0, 0.5)),
        ("spending_rate = 0.8", ("rdp", 0.8, 2.0)),
        ("spare = 0.2", ("rdp", 1.0, 2.0)),
    ):
        path.write_text(CONFIG.format(keys=keys))
        made = make_plan(load_config(path))
        assert (made.accountant, made.spending_rate, made.parameters["memory"]) == expected
    path.write_text(CONFIG.format(keys='influence = "influence.json"'))
    assert make_plan(load_config(path)).parameters["influence"] == [0.2, 0.5, 1.0]
    result = run("plan", path, "--compare")
    assert result.code == 0, result.err
    assert "optimal" in result.out
    path.write_text(CONFIG.format(keys="memory = 2.0").replace('"optimal"', '"shaped"'))
    refused = run("plan", path)
    assert refused.code == 2
    assert "privacy.memory belongs to the method 'optimal'" in refused.err
