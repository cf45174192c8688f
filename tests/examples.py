"""How much is tried: by `make check` no slow cases, and a quarter of the examples; large forms by `make soak` only."""

from __future__ import annotations

import pytest
from hypothesis import settings


def examples(number: int) -> settings:
    """Settings for tests that take as long as they take; conftest.py chooses the profile before tests are imported."""
    quick = settings.get_current_profile_name() == "quick"
    return settings(deadline=None, max_examples=number // 4 if quick else number)


def slow(*values: str) -> list[object]:
    """Parameters that only `make test` tries."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def soak(value: object, name: str) -> object:
    """A parameter that only `make soak` tries: the large form of what `make test` shows in a small one."""
    return pytest.param(value, marks=(pytest.mark.slow, pytest.mark.soak), id=name)
