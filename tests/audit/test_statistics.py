"""Statistics of an audit: right about a mechanism that keeps its promise, and about one that does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

import nestegg
from nestegg.accounting import Array
from nestegg.audit import statistics, tradeoff
from nestegg.audit.claims import Claims
from nestegg.audit.findings import Finding, corrected
from nestegg.audit.trials import Noise, Trials
from nestegg.planning import Plan
from nestegg.planning.losses import spending

TRIALS = 600


@pytest.fixture(scope="module")
def claims() -> Claims:
    groups = [
        nestegg.Group("strict", 10, nestegg.Budget(4.0), saving_rate=0.5),
        nestegg.Group("open", 10, nestegg.Budget(8.0), saving_rate=0.7),
    ]
    return Claims(nestegg.plan(groups, rounds=6), nestegg.Mechanics(), nestegg.LocalTraining())


def ideal(claims: Claims, rng: np.random.Generator, noise: float = 1.0, rate: float = 0.0, size: float = 1.0) -> Trials:
    """Trials of a mechanism in a few lines of NumPy, right or wrong by factors of its noise, its rate, its signal."""
    group = np.arange(TRIALS) % len(claims.sizes)
    present = np.arange(TRIALS) // len(claims.sizes) % 2 == 0
    rates, signal = claims.rates[group], 1.0 / claims.noise[group]
    drawn = rng.random(rates.shape) < np.minimum(rates + rate, 1.0)
    seen = noise * rng.standard_normal(rates.shape) + size * signal * (drawn & present[:, None])
    quiet = Noise()
    quiet.add(noise * rng.standard_normal((40, 50)), None)
    return Trials(np.arange(20), group, present, seen, signal, drawn, quiet, Noise(), Noise(), TRIALS // 20)


def p_values(claims: Claims, trials: Trials) -> dict[str, float]:
    found = [*statistics.of_everybody("", trials), *statistics.of_group("", claims, trials, 0)]
    return {one.attack: one.p for one in found if one.p is not None}


def test_p_values_of_a_right_mechanism_are_uniform_and_never_too_small(claims: Claims) -> None:
    rng = np.random.default_rng(5)
    found = [p_values(claims, ideal(claims, rng)) for _ in range(200)]
    for attack in found[0]:
        values = np.array([one[attack] for one in found])
        assert stats.kstest(values, "uniform").pvalue > 1e-4, attack


@pytest.mark.parametrize(
    ("wrong", "attack"),
    [
        ({"noise": 0.9}, "noise"),
        ({"rate": 0.1}, "sampling"),
        ({"rate": 0.1}, "sampling by round"),
        ({"size": 2.0}, "signal"),
        ({"size": 2.0}, "distribution with data"),
        ({"noise": 0.6}, "distribution without data"),
    ],
)
def test_a_wrong_mechanism_is_seen(claims: Claims, wrong: dict[str, float], attack: str) -> None:
    assert p_values(claims, ideal(claims, np.random.default_rng(6), **wrong))[attack] < 1e-6


def test_the_distribution_that_is_claimed_is_that_of_the_sampled_gaussian() -> None:
    def density(y: float) -> float:
        return float(0.7 * stats.norm.pdf(y) + 0.3 * stats.norm.pdf(y, loc=1.5))

    for seen in (-1.0, 0.4, 2.2):
        area, _ = integrate.quad(density, -12.0, seen)
        found = statistics.mixture_cdf(np.array([seen]), np.array([1.5]), np.array([0.3]))
        assert found[0] == pytest.approx(area, abs=1e-9)


def drawn_ratios(claims: Claims, group: int, count: int) -> tuple[Array, Array]:
    """Likelihood ratios of the plan's own mechanism, with data and without."""
    rng, q, mu = np.random.default_rng(7), claims.rates[group], 1.0 / claims.noise[group]
    shape = (count, len(q))
    worlds = rng.standard_normal(shape) + mu * (rng.random(shape) < q), rng.standard_normal(shape)
    own, none = (np.log1p(q * np.expm1(y * mu - mu * mu / 2.0)).sum(axis=1) for y in worlds)
    return own, none


def test_the_claimed_curve_is_that_of_the_best_test(claims: Claims) -> None:
    present, absent = drawn_ratios(claims, 0, 200_000)
    curve = tradeoff.claimed_curve(claims, 0)
    for level in (0.5, 0.9, 0.99):
        threshold = np.quantile(absent, level)
        alarms, misses = (absent > threshold).mean(), (present <= threshold).mean()
        least = curve.least_miss(np.array([alarms]))[0]
        assert misses == pytest.approx(least, abs=0.01)
        assert misses >= least - 0.004


def test_a_promise_that_is_kept_is_not_refuted_and_one_that_is_not_is(claims: Claims) -> None:
    present, absent = drawn_ratios(claims, 1, 4000)
    kept, broken = tradeoff.claimed_curve(claims, 1), tradeoff.claimed_curve(claims, 0)
    assert tradeoff.refutation(kept, present, absent)[1] > 1e-3
    assert tradeoff.refutation(kept, -absent, -present)[1] > 1e-3
    assert tradeoff.refutation(broken, present, absent)[1] < 1e-6
    assert tradeoff.refutation(broken, -absent, -present)[1] < 1e-6


def test_bounds_are_those_of_clopper_and_pearson() -> None:
    for hits, trials in ((0, 50), (7, 50), (50, 50)):
        for level in (0.05, 1e-6):
            known = stats.binomtest(hits, trials).proportion_ci(1.0 - 2.0 * level, "exact")
            assert tradeoff._lower(hits, trials, level) == pytest.approx(known.low, abs=1e-9)
            assert tradeoff._upper(hits, trials, level) == pytest.approx(known.high, abs=1e-9)


def test_a_lower_bound_is_below_the_truth_and_rises_with_trials(claims: Claims) -> None:
    delta = claims.plan.delta
    truth = spending(claims.plan.groups[1].charges()).epsilon(delta)[0]
    few, many = (tradeoff.bound_by_counting(*drawn_ratios(claims, 1, n), delta) for n in (400, 100_000))
    assert 0.0 < few < many < truth


def test_evidence_the_wrong_way_round_is_no_evidence() -> None:
    rng = np.random.default_rng(8)
    high, low = rng.normal(3.0, 1.0, 500), rng.normal(0.0, 1.0, 500)
    assert tradeoff.bound_by_gaussian(high, low, 1e-5) > 5.0
    assert tradeoff.bound_by_gaussian(low, high, 1e-5) == 0.0
    assert tradeoff.bound_by_counting(low, high, 1e-5) == 0.0


def test_a_gaussian_fit_gives_the_epsilon_of_its_mechanism() -> None:
    rng = np.random.default_rng(9)
    fit = tradeoff.bound_by_gaussian(rng.normal(2.0, 1.0, 10**6), rng.normal(0.0, 1.0, 10**6), 1e-5)
    exact = nestegg.accounting.GaussianAccountant().spend(1.0, 0.5).epsilon(1e-5)[0]
    assert exact * 0.98 < fit < exact


def test_p_values_are_multiplied_by_how_many_there_are_and_exact_findings_are_not() -> None:
    findings = [Finding("a", "x", "", p=2e-4), Finding("a", "y", "", p=0.5), Finding("a", "z", "", refutes=True)]
    assert [(one.p, one.refutes) for one in corrected(findings)] == [(4e-4, True), (1.0, False), (None, True)]
    assert not corrected([replace(findings[0], p=6e-4), findings[1]])[0].refutes


def test_what_was_spent_before_is_not_part_of_what_is_attacked(claims: Claims) -> None:
    def planned(spent: tuple[nestegg.Charge, ...]) -> Plan:
        budget = nestegg.Budget(8.0)
        return nestegg.plan([nestegg.Group("all", 10, budget, already_spent=spent)], rounds=4)

    curve = tradeoff.claimed_curve(replace(claims, plan=planned((nestegg.Charge(0.5, 3.0, 20),))), 0)
    fresh = tradeoff.claimed_curve(replace(claims, plan=planned(())), 0)
    assert curve.deltas[0] < fresh.deltas[0]


def rare(claims: Claims, rng: np.random.Generator, rate: float, *, held: bool = False) -> Trials:
    """Draws of a group by one small rate; `held` lets the draw of a round be that of the round before."""
    drawn = rng.random((TRIALS, claims.plan.rounds)) < rate
    if held:
        drawn[:, 1::2] = drawn[:, ::2]
    nobody, zeros = np.zeros(TRIALS, np.int64), np.zeros(drawn.shape)
    return Trials(nobody, nobody, nobody == 0, zeros, zeros, drawn, Noise(), Noise(), Noise(), 1)


def test_rare_draws_that_meet_by_chance_are_no_alarm(claims: Claims) -> None:
    rng, rate = np.random.default_rng(11), 0.01
    row = replace(claims.plan.groups[0], sampling_rate=(rate,) * claims.plan.rounds)
    plan = replace(claims.plan, groups=(row, *claims.plan.groups[1:]))
    seldom = replace(claims, plan=plan)
    found = [one for _ in range(300) for one in statistics.sampling("", seldom, rare(seldom, rng, rate), 0)]
    assert {one.attack for one in found} == {"sampling", "sampling by round"}  # too few meet for anything else
    values = np.array([one.p for one in found], np.float64)
    for level in (0.1, 0.01):
        assert (values <= level).mean() <= 1.5 * level
    assert min(one.p or 0.0 for one in statistics.sampling("", seldom, rare(seldom, rng, 3 * rate), 0)) < 1e-9


def test_a_cohort_that_is_drawn_once_for_two_rounds_is_seen(claims: Claims) -> None:
    row = replace(claims.plan.groups[0], sampling_rate=(0.4,) * claims.plan.rounds)
    often = replace(claims, plan=replace(claims.plan, groups=(row, *claims.plan.groups[1:])))
    found = statistics.sampling("", often, rare(often, np.random.default_rng(12), 0.4, held=True), 0)
    assert {one.attack for one in found if one.p is not None and one.p < 1e-6} == {"sampling across rounds"}


def test_likelihood_ratios_are_finite_where_all_take_part_and_noise_is_small(claims: Claims) -> None:
    row = replace(claims.plan.groups[0], sampling_rate=(1.0,) * claims.plan.rounds)
    certain = replace(claims, plan=replace(claims.plan, groups=(row, *claims.plan.groups[1:])))
    signal, present = np.full((4, claims.plan.rounds), 60.0), np.arange(4) % 2 == 0
    seen = signal * present[:, None]
    group = np.zeros(4, np.int64)
    trials = Trials(group, group, present, seen, signal, seen > 0.0, Noise(), Noise(), Noise(), 1)
    own, none = tradeoff.likelihood_ratios(certain, trials, 0)
    assert own == pytest.approx(claims.plan.rounds * 1800.0)
    assert none == pytest.approx(claims.plan.rounds * -1800.0)
