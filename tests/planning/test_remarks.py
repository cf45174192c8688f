"""What is said about a plan before anybody trains by it."""

from __future__ import annotations

from typing import Any

import pytest

from nestegg import Budget, Group, plan
from nestegg.planning import remarks

PLAIN = Group("a", 100, Budget(8.0), saving_rate=0.5)


@pytest.mark.parametrize("method", ["dp-fedavg", "idp-fedavg", "spend-as-you-go", "fedavg"])
def test_a_plain_plan_has_no_remarks(method: str) -> None:
    assert remarks(plan([PLAIN], 20, method=method)) == []


@pytest.mark.parametrize(
    ("group", "options", "words"),
    [
        (Group("a", 100, Budget(8.0)), {"method": "spend-as-you-go"}, "No group saves"),
        (Group("a", 100, Budget(8.0, 0.01), 0.5), {}, "delta = 0.01 is at least 1/100"),
        (Group("a", 100, Budget(100.5), 0.5), {"rounds": 200}, "Group 'a': epsilon above 100"),
        (Group("a", 100, Budget(60.0), 0.5), {"rounds": 1, "method": "idp-fedavg"}, "noise_multiplier falls below 0.3"),
        (Group("a", 3, Budget(1.0), 0.5), {}, "times all that a cohort can contribute"),
        (PLAIN, {"clip_norm": 1e9}, "clip_norm = 1e+09 is unusual"),
    ],
)
def test_one_remark_each(group: Group, options: dict[str, Any], words: str) -> None:
    (remark,) = remarks(plan([group], **{"rounds": 20, **options}))
    assert words in remark


def test_just_inside_there_is_nothing_to_say() -> None:
    assert remarks(plan([Group("a", 100, Budget(8.0, 0.0099), 0.5)], 20)) == []
    assert remarks(plan([Group("a", 100, Budget(100.0), 0.5)], 200)) == []


def test_many_groups_are_counted_and_not_listed() -> None:
    groups = [Group(f"g{i}", 100, Budget(200.0 + i), 0.5) for i in range(5)]
    assert remarks(plan(groups, 400)) == [
        "Groups 'g0', 'g1', 'g2' and 2 more: epsilon above 100 promises next to nothing."
    ]
