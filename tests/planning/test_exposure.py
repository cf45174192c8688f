"""What attackers gain who know more than a plan assumes, and that others' budgets are nothing to gain from."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opacus.accountants.analysis.rdp import compute_rdp

from nestegg import Budget, Charge, Group, Plan, load_plan, plan
from nestegg.accounting import ORDERS
from nestegg.mechanism import share_std
from nestegg.planning import epsilon_text, exposures
from nestegg.report.promises import promises
from tests.conftest import ANY_LENGTH, EXAMPLE, GROUPS, Run, with_history
from tests.examples import examples
from tests.oracles import epsilon_from_rdp, gaussian_epsilon


def test_who_knows_that_a_client_was_sampled_gets_it_without_amplification(exact: Plan) -> None:
    for one in exposures(exact):
        mu = sum(sigma**-2 for sigma in one.row.noise_multiplier) ** 0.5
        assert one.sampled == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-9)
        assert one.sampled > one.row.group.budget.epsilon >= one.epsilon


def test_earlier_releases_count_as_sampled_too() -> None:
    made = plan(with_history(ANY_LENGTH, {"strict": [Charge(0.1, 1.5, 2), Charge(0.0, 0.5)]}), 4)
    mu = (2 / 1.5**2 + sum(sigma**-2 for sigma in made.groups[0].noise_multiplier)) ** 0.5
    assert exposures(made)[0].sampled == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-9)


def test_at_rate_1_nothing_rests_on_a_secret_cohort() -> None:
    made = plan(GROUPS, 25, method="idp-fedavg", accountant="gaussian", spending_rate=1.0)
    for one in exposures(made):
        assert one.sampled == pytest.approx(one.epsilon, rel=1e-8)
        assert one.excess == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize(("configured", "known"), [(0, [1]), (1, [1]), (7, [1, 7])])
def test_colluders_take_their_shares_out_of_the_noise(configured: int, known: list[int]) -> None:
    """What is left of the noise by the shares of the mechanism itself, and its price by Opacus' curves."""
    made = plan(ANY_LENGTH, 6, method="idp-fedavg")
    clients = made.clients
    for one in exposures(made, configured):
        assert list(one.colluding) == known
        for k, epsilon in one.colluding.items():
            left = share_std(1.0, clients, configured) * math.sqrt(clients - k)  # of a total noise of 1
            assert left == pytest.approx(1.0) or k > configured or left > 1.0
            sigma = min(left, 1.0) * one.row.noise_multiplier[0]
            curve = compute_rdp(q=0.9, noise_multiplier=sigma, steps=6, orders=list(ORDERS))
            assert epsilon == pytest.approx(epsilon_from_rdp(list(ORDERS), curve.tolist(), 1e-5), rel=1e-5)
            assert (epsilon > one.epsilon) == (k > configured)


def test_advantage_is_the_total_variation() -> None:
    """Of one release with closed forms: q (2Φ(1/2σ) − 1), and 2Φ(μ/2) − 1 for many without sampling."""
    (once,) = exposures(plan([Group("a", 5, Budget(3.0))], 1, method="spend-as-you-go", spending_rate=0.6))
    sigma = once.row.noise_multiplier[0]
    assert once.advantage == pytest.approx(0.6 * math.erf(0.5 / sigma / math.sqrt(2)), abs=1e-3)
    (often,) = exposures(plan([Group("a", 5, Budget(3.0))], 30, method="spend-as-you-go", spending_rate=1.0))
    mu = math.sqrt(30) / often.row.noise_multiplier[0]
    assert often.advantage == pytest.approx(math.erf(0.5 * mu / math.sqrt(2)), abs=1e-3)
    assert often.excess < 0.0  # RDP leaves something over


@examples(15)
@given(
    others=st.lists(st.floats(0.5, 60.0), min_size=1, max_size=3),
    clients=st.integers(1, 1000),
    method=st.sampled_from(["idp-fedavg", "spend-as-you-go", "shaped"]),
    accountant=st.sampled_from(["rdp", "renyi"]),
)
def test_others_choices_cannot_raise_a_clients_risk(
    others: list[float], clients: int, method: str, accountant: str
) -> None:
    """A group's rates and noise multipliers, all that is charged, are the same whoever else is in the federation."""
    own = Group("own", 10, Budget(8.0), saving_rate=0.5, transition=4)
    crowd = [Group(f"other {i}", clients, Budget(e), 0.3, 6) for i, e in enumerate(others)]
    alone = plan([own], 8, method=method, accountant=accountant).groups[0]
    among = plan([own, *crowd], 8, method=method, accountant=accountant).groups[0]
    assert among.sampling_rate == alone.sampling_rate
    assert among.noise_multiplier == pytest.approx(alone.noise_multiplier, rel=1e-7)
    assert among.epsilon_spent[-1] <= 8.0


def test_numbers_beyond_all_use_say_so() -> None:
    assert epsilon_text(math.inf) == "∞"
    weak = plan([Group("a", 2, Budget(1e5))], 200, method="spend-as-you-go", spending_rate=0.01)
    (one,) = exposures(weak)
    assert epsilon_text(one.sampled) == "> 10,000"
    assert exposures(plan(ANY_LENGTH, 3, method="fedavg")) == ()


@pytest.mark.slow
def test_the_commands_show_it(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    text = (
        EXAMPLE.read_text().replace("rounds = 25", "rounds = 13").replace("[privacy]", "[privacy]\ncolluders = 10", 1)
    )
    config.write_text(text)
    shown = run("plan", config)
    assert "for sure" in shown.out
    assert "colluders" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    text = run("plan", config, "--json").out
    first = json.loads(text)["exposure"][0]
    assert (first["name"], set(first["epsilon_colluding"])) == ("strict", {"1", "10"})
    assert first["epsilon_sampled"] > first["epsilon"]
    (tmp_path / "plan.json").write_text(text)
    load_plan(tmp_path / "plan.json").verify()  # what is found about a plan does not change it


def test_a_plan_for_nobody_else_has_no_colluders() -> None:
    (one,) = exposures(plan([replace(GROUPS[0], clients=1)], 25))
    assert one.colluding == {}


def test_the_report_shows_it() -> None:
    table = promises(plan(ANY_LENGTH, 4, method="idp-fedavg"), done=4, colluders=3)
    for words in (
        "ε, sampled for sure",
        "ε, 1 colluder",
        "ε, 3 colluders",
        "excess advantage",
        "data being there or not",
    ):
        assert words in table
    assert promises(plan(ANY_LENGTH, 4, method="fedavg"), done=4) == ""
