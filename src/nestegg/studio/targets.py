"""The other way round: from what is wanted to ε. Each answer is found with the numbers that the page shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nestegg.checks import one_of, positive
from nestegg.configuration.participants import pace_of_config
from nestegg.errors import InputError
from nestegg.planning.certainty import certainty
from nestegg.planning.reaching import noise_to_signal
from nestegg.studio.answers import plan_of
from nestegg.studio.draft import Draft

TARGETS = ("certainty", "noise")
LEAST, MOST = 1e-3, 1e4  # ε that are looked at
_STEPS = 40  # of bisection at most
_CLOSE = 1e-4  # relatively


def reached(
    draft: Draft, target: str, wanted: str, of: str | None, goes_on: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Return the ε of all groups with which a target is just met.

    Args:
        draft: to begin with.
        target: certainty, a percentage of right guesses of the best attacker on one group; or noise, the ratio of
            noise to signal in the model, for which all ε are raised or lowered by one factor.
        wanted: the number.
        of: the group's name, for a certainty.
        goes_on: is called before each step.
    """
    one_of("target", target, TARGETS)
    try:
        number = positive("wanted", float(wanted))
    except ValueError:
        raise InputError(f"wanted = {wanted!r} must be a number.") from None
    if target == "noise":
        return _of_noise(draft, number, goes_on)
    names = [group.name for group in draft.groups]
    place = names.index(one_of("group", of or names[0], names))
    return _of_certainty(draft, number / 100.0, place, goes_on)


def _of_certainty(draft: Draft, right: float, place: int, goes_on: Callable[[], None]) -> dict[str, Any]:
    if not 0.5 < right < 1.0:
        raise InputError(f"wanted = {right * 100:g} must be a percentage above 50 and below 100.")

    def changed(epsilon: float) -> Draft:
        rows = (replace(one, epsilon=epsilon) if i == place else one for i, one in enumerate(draft.groups))
        return replace(draft, groups=tuple(rows))

    def found(epsilon: float) -> float:
        goes_on()
        return certainty(plan_of(changed(epsilon)).groups[place])

    best = changed(_rounded(_largest(found, right, start=draft.groups[place].epsilon), math.floor))
    return {"epsilon": [one.epsilon for one in best.groups]}


def _of_noise(draft: Draft, ratio: float, goes_on: Callable[[], None]) -> dict[str, Any]:
    pace = pace_of_config(draft.config())

    def scaled(factor: float) -> Draft:
        return replace(draft, groups=tuple(replace(one, epsilon=one.epsilon * factor) for one in draft.groups))

    def found(factor: float) -> float:
        goes_on()
        return -noise_to_signal(plan_of(scaled(factor)), draft.parameters, pace)

    # The smallest factor at which noise is small enough: just above the largest at which it is not.
    factor = _largest(found, -ratio, start=1.0) * (1.0 + _CLOSE)
    return {"epsilon": [_rounded(one.epsilon, math.ceil) for one in scaled(factor).groups]}


def _largest(value: Callable[[float], float], at_most: float, *, start: float) -> float:
    """Return the largest argument at which a rising value is at most so much, from below, to a relative 1e-4."""
    low, high = start, start
    while value(low) > at_most:
        if low < LEAST * min(start, 1.0):
            raise InputError("no ε that the page knows is small enough for that.")
        high, low = low, low / 4.0
    while value(high) <= at_most:
        if high > MOST * max(start, 1.0):
            raise InputError("no ε that the page knows is large enough for that.")
        low, high = high, high * 4.0
    for _ in range(_STEPS):
        if high <= low * (1.0 + _CLOSE):
            break
        middle = (low * high) ** 0.5
        low, high = (middle, high) if value(middle) <= at_most else (low, middle)
    return low


def _rounded(value: float, towards: Callable[[float], int]) -> float:
    """Return four digits of a number, towards the side on which the target is met."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{towards(value / digit) * digit:.4g}")
