"""Groups of clients: names, defaults, and everybody's own budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestegg import (
    Budget,
    Group,
    InputError,
    grouped,
    plan,
)
from tests.examples import examples


def test_defaults_save_until_the_middle() -> None:
    saver = plan([Group("g", 1, Budget(5.0), saving_rate=0.5)], rounds=25).groups[0]
    assert saver.group.transition == 13
    spender = plan([Group("g", 1, Budget(5.0))], rounds=25, method="spend-as-you-go").groups[0]
    assert (spender.group.saving_rate, spender.group.transition) == (0.9, 1)


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
