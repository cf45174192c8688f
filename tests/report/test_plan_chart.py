"""A plan's chart: the numbers in its panels, the files it is written to, and how it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestegg
from nestegg import Budget, Group, InputError, Plan
from nestegg.planning.curves import pace_of
from nestegg.report.plan_chart import UNIFORM, plan_chart, write_plan_chart
from tests.conftest import Run

GROUPS = [Group("strict", 30, Budget(2.0)), Group("<open>", 70, Budget(8.0))]
ROUNDS = 6
PACE = pace_of(None, ROUNDS)
CONFIG = """
[federation]
dataset = "digits"
clients = 10

[training]
rounds = 6

[privacy]
method = "{method}"

[[privacy.groups]]
name = "all"
share = 1.0
epsilon = 10.0
"""


def made(method: Any) -> Plan:
    return nestegg.plan(GROUPS, ROUNDS, method=method, spending_rate=1.0, accountant="gaussian")


def panels(plan: Plan) -> list[list[dict[str, Any]]]:
    """The rows behind each panel."""
    plans = {"optimal": plan, UNIFORM: made("idp-fedavg")}
    drawn = plan_chart(plan, plans, PACE).to_dict()
    return [panel["data"]["values"] for panel in drawn["vconcat"]]


def of(rows: list[dict[str, Any]], value: str, **labels: str) -> list[float]:
    return [row[value] for row in rows if all(row[key] == label for key, label in labels.items())]


@pytest.mark.parametrize("memory", [0.0, 3.0])
def test_the_panels_hold_what_the_law_says(memory: float) -> None:
    """By hand: a_t = w_t λ_t; noise a_t for uniform spending, and ∝ a_t^(1/2) for the optimum."""
    plan = made(nestegg.Optimal(memory=memory))
    rates = np.array(PACE.learning_rate)
    after = 1.0 - np.cumsum(rates) / rates.sum()
    a = np.exp(-memory * np.maximum(after, 0.0)) * rates
    effect, noise, spent = panels(plan)
    assert of(effect, "effect") == pytest.approx(a / a.max())
    assert of(noise, "noise", method="idp-fedavg (uniform)") == pytest.approx(a / a.mean())
    optimal = np.array(of(noise, "noise", method="optimal"))
    assert optimal / optimal[0] == pytest.approx(np.sqrt(a / a[0]))
    for row, uniform in zip(plan.groups, made("idp-fedavg").groups, strict=True):
        group = f"{row.group.name} (ε = {row.group.budget.epsilon:g})"
        assert of(spent, "spent", group=group, schedule="optimal") == list(row.epsilon_spent)
        assert of(spent, "spent", group=group, schedule="idp-fedavg (uniform)") == list(uniform.epsilon_spent)


def test_a_measured_curve_is_what_is_drawn() -> None:
    curve = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    effect, *_ = panels(made(nestegg.Optimal(influence=curve)))
    a = np.array(curve) * PACE.learning_rate
    assert of(effect, "effect") == pytest.approx(a / a.max())


def test_of_many_groups_some_are_shown_and_that_is_said() -> None:
    groups = [Group(f"g{i}", 1, Budget(1.0 + i)) for i in range(9)]
    plans = {
        m: nestegg.plan(groups, 3, method=m, spending_rate=1.0, accountant="gaussian") for m in ("optimal", UNIFORM)
    }
    drawn = plan_chart(plans["optimal"], plans, pace_of(None, 3)).to_dict()["vconcat"][2]
    assert "7 of 9 groups" in drawn["title"]
    assert len({row["group"] for row in drawn["data"]["values"]}) == 7


def test_uniform_spending_itself_is_one_line(tmp_path: Path) -> None:
    plan = made("idp-fedavg")
    chart = plan_chart(plan, {UNIFORM: plan}, PACE).to_dict()
    assert {row["schedule"] for row in chart["vconcat"][2]["data"]["values"]} == {"idp-fedavg (uniform)"}


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("html", b"<!doctype html>")])
def test_the_suffix_says_what_is_written(suffix: str, start: bytes, tmp_path: Path) -> None:
    plan = made("optimal")
    write_plan_chart(tmp_path / f"plan.{suffix}", plan, {"optimal": plan, UNIFORM: made(UNIFORM)}, PACE)
    content = (tmp_path / f"plan.{suffix}").read_bytes()
    assert content.startswith(start)
    assert b"<open>" not in content  # a group's name is text, wherever it stands


def test_the_command_draws_all_methods_that_it_compares(run: Run, tmp_path: Path) -> None:
    config, chart = tmp_path / "config.toml", tmp_path / "plan.svg"
    config.write_text(CONFIG.format(method="optimal"))
    result = run("plan", config, "--chart", chart)
    assert result.code == 0, result.err
    assert f"Drawn in {chart}." in result.out.replace("\n", "")
    assert ">optimal<" in chart.read_text()
    assert "paper" not in chart.read_text()
    assert run("plan", config, "--compare", "--json", "--chart", chart).out.startswith("{")
    for name in ("optimal", "exact", "paper", "idp-fedavg (uniform)"):
        assert f">{name}<" in chart.read_text()


@pytest.mark.parametrize(
    ("file", "method", "words"),
    [
        ("plan.gif", "optimal", "the suffix = '.gif' must be one of .svg, .png, .html"),
        ("plan", "optimal", "the suffix = '' must be one of"),
        ("nowhere/plan.svg", "optimal", "does not exist"),
        ("plan.svg", "fedavg", "method = 'fedavg' has no noise to draw"),
    ],
)
def test_it_says_what_it_cannot_draw(file: str, method: str, words: str, run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(method=method))
    result = run("plan", config, "--chart", tmp_path / file)
    assert result.code == 2
    assert words in " ".join(result.err.split())
    assert not (tmp_path / file).exists()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    monkeypatch.setattr("nestegg.extras._installed", lambda module: module != "altair")
    result = run("plan", tmp_path / "config.toml", "--chart", tmp_path / "plan.svg")
    assert result.code == 2
    assert "nestegg plan --chart needs the extra 'charts'" in " ".join(result.err.split())


def test_no_noise_no_chart() -> None:
    with pytest.raises(InputError, match="has no noise"):
        plan_chart(nestegg.plan(GROUPS, ROUNDS, method="fedavg"), {}, PACE)
