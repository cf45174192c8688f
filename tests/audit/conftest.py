"""Audits that do not depend on luck: secrets come from a fixed sequence, and trials are counted instead of timed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import randomgen

from nestegg.audit import Clock
from nestegg.mechanism.randomness import Purpose, Randomness

SECRET = (Purpose.COHORT, Purpose.NOISE, Purpose.BITS)


class Counted(Clock):
    """Lets every arm have so many passes; too brief for Flower and twin runs, which have tests of their own."""

    def __init__(self, passes: int) -> None:
        super().__init__(1.0)
        self.passes = passes

    def until(self, share: float, tell: Callable[[float], None]) -> Callable[[int], bool]:
        """Go on until there are enough."""
        return lambda passes: not self.stopped and passes < self.passes


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw secrets from a sequence that is the same in every test."""
    numbers, real = count(), Randomness.stream

    def stream(self: Randomness, purpose: Purpose, round_: int = 0, **options: Any) -> np.random.Generator:
        if purpose in SECRET and not self.reproducible:
            return np.random.Generator(randomgen.AESCounter(np.random.SeedSequence((1234, next(numbers)))))
        return real(self, purpose, round_, **options)

    monkeypatch.setattr(Randomness, "stream", stream)
