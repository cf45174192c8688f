"""The paper's Fashion-MNIST federation, which most tests of plans start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nestegg import Budget, Group, Plan, plan

EXAMPLE = Path(__file__).parent.parent / "examples" / "fashion-mnist.toml"

GROUPS = (
    Group("strict", 34, Budget(10.0), saving_rate=0.5, transition=13),
    Group("middle", 43, Budget(20.0), saving_rate=0.6, transition=13),
    Group("open", 23, Budget(30.0), saving_rate=0.7, transition=13),
)
ANY_LENGTH = tuple(replace(group, transition=None) for group in GROUPS)  # saving until the middle of any training


@pytest.fixture(scope="session")
def exact() -> Plan:
    return plan(GROUPS, rounds=25)


@pytest.fixture(scope="session")
def paper() -> Plan:
    return plan(GROUPS, rounds=25, composition="paper")
