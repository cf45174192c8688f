"""Whoever trains by a plan checks what it promises, whoever made it; a plan that was made here is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nestegg
from nestegg import Budget, Charge, Federation, Group, InputError, Plan
from nestegg.accounting import RdpAccountant
from nestegg.planning import check_promises, judge, judged, parse_plan
from nestegg.planning.consistency import clip_norms
from nestegg.planning.judge import epsilons
from nestegg.planning.remembered import Remembered

GROUPS = [Group("strict", 2, Budget(5.0), saving_rate=0.5), Group("open", 1, Budget(9.0), saving_rate=0.5)]
ROUNDS = 6
CLIENTS = [(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))] * 3


def made(accountant: Any = "rdp", **options: Any) -> Plan:
    rate = 1.0 if accountant == "gaussian" else 0.9
    groups = [replace(group, saving_rate=None) for group in GROUPS] if rate == 1.0 else GROUPS
    return nestegg.plan(groups, ROUNDS, accountant=accountant, spending_rate=rate, **options)


def federation(plan: Plan) -> Federation:
    return Federation(plan, nn.Linear(3, 2), CLIENTS)


def louder(plan: Plan, factor: float, honest: bool) -> Plan:
    """The plan with less noise, clip norms that fit, and what is spent either as it is or as it was."""
    rows = [replace(row, noise_multiplier=tuple(factor * s for s in row.noise_multiplier)) for row in plan.groups]
    made = replace(plan, groups=tuple(rows))
    norms = clip_norms(made)
    rows = [replace(row, clip_norm=tuple(norms[i].tolist())) for i, row in enumerate(rows)]
    if honest:
        rows = [replace(row, epsilon_spent=tuple(epsilons(made, row).tolist())) for row in rows]
    return replace(made, groups=tuple(rows))


def first(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, groups=(replace(plan.groups[0], **changes), *plan.groups[1:]))


def wealthy_history(plan: Plan) -> Plan:
    spent = replace(plan.groups[0].group, already_spent=(Charge(0.9, 1.0, 3),))
    return first(plan, group=spent)


def at_odd_orders(plan: Plan) -> Plan:
    """At an order that is not ours the stated numbers follow from the rows, and are within larger budgets."""
    return louder(replace(plan, orders=(7.123,)), 0.9, honest=True)


FORGED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "less noise": (lambda plan: louder(plan, 0.9, honest=False), "'strict': epsilon_spent does not follow"),
    "less noise, as stated": (lambda plan: louder(plan, 0.9, honest=True), "'strict' is over budget"),
    "a little less noise": (lambda plan: louder(plan, 0.999, honest=True), "'strict' is over budget"),
    "less is said to be spent": (
        lambda plan: first(plan, epsilon_spent=tuple(0.9 * e for e in plan.groups[0].epsilon_spent)),
        "'strict': epsilon_spent does not follow",
    ),
    "another spending by PLD": (lambda plan: first(plan, epsilon_spent_pld=0.1), "epsilon_spent_pld does not follow"),
    "something spent before": (wealthy_history, "'strict': epsilon_spent does not follow"),
    "orders that are not ours": (at_odd_orders, "'strict' is over budget"),
    "more rounds of spending": (
        lambda plan: first(plan, group=replace(plan.groups[0].group, transition=1)),
        "'strict': sampling_rate does not follow",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_plan_does_not_train(name: str) -> None:
    forge, sentence = FORGED[name]
    plan = made()
    forged = forge(plan)
    with pytest.raises(InputError, match=rf"^plan: group .*{sentence}"):
        federation(forged)
    if forged.digest != plan.digest:  # else it goes on by its own
        with pytest.raises(InputError, match=rf"^plan: group .*{sentence}"):
            federation(plan).by(forged)
    with pytest.raises(InputError, match=rf"^plan: group .*{sentence}"):  # it was not learnt by being refused
        federation(parse_plan(forged.to_json(), "a file"))


@pytest.mark.parametrize(
    ("accountant", "honest"),
    [("pld", True), ("pld", False), ("gaussian", False), ("gaussian", True), ("renyi", False), ("renyi", True)],
)
def test_every_accountant_catches_less_noise(accountant: str, honest: bool) -> None:
    with pytest.raises(InputError, match=r"'strict'(: epsilon_spent does not follow| is over budget)"):
        federation(louder(made(accountant), 0.97, honest))


@pytest.mark.parametrize(
    "plan",
    [
        made(),
        made("pld"),
        made("gaussian"),
        made("renyi"),
        made(RdpAccountant((3.0, 4.05, 6.0))),
        made(method="adaptive-clipping"),
        made(method="fedavg"),
        made(method=nestegg.Shaped("linear")),
        made().replan(2, {"open": [Charge(0.9, 9.0)]}),
        judged(made()),
    ],
    ids=lambda plan: f"{plan.method}, {plan.accountant}, {len(plan.orders)}, {plan.rounds}",
)
def test_sound_plans_of_others_train(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_known", Remembered())
    federation(parse_plan(plan.to_json(), "a file"))


def test_what_was_made_or_checked_here_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, foreign = made(), made(RdpAccountant())
    assert foreign.digest == plan.digest
    told = judged(plan)
    other = louder(plan, 1.5, honest=True)  # more noise than needed is no promise broken
    federation(other)

    def again(*_: object) -> None:
        raise AssertionError("it is known")

    monkeypatch.setattr(judge, "epsilons", again)
    monkeypatch.setattr(judge, "epsilon_by_pld", again)
    for known in (plan, told, other, parse_plan(told.to_json(), "a file")):
        federation(known)
    with pytest.raises(AssertionError):
        federation(first(told, epsilon_spent_pld=np.nextafter(told.groups[0].epsilon_spent_pld or 0.0, 9.0)))
    monkeypatch.setattr(judge, "_known", Remembered())
    with pytest.raises(AssertionError):
        check_promises(plan)


def test_an_accountant_that_is_given_is_not_trusted() -> None:
    class Generous(RdpAccountant):
        """Counts a tenth of what is spent."""

        def spend(self, q: Any, sigma: Any) -> Any:
            return super().spend(q, sigma) * 0.1

    plan = made(Generous())
    assert plan.groups[0].epsilon_spent[-1] <= 5.0
    with pytest.raises(InputError, match="'strict': epsilon_spent does not follow from the plan's rows"):
        federation(plan)


def test_only_so_many_plans_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_known", known := Remembered(most=2))
    plans = [made(clip_norm=norm) for norm in (1.0, 2.0, 3.0)]
    assert [plan in known for plan in plans] == [False, True, True]
    federation(plans[0])
