"""Validation of single values. Every message carries the field, its value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real
from typing import TypeVar

from nestegg.errors import InputError

Choice = TypeVar("Choice", bound=str)


# Rounds and clients beyond these are mistakes, and would take all memory.
MAX_ROUNDS, MAX_CLIENTS = 10**6, 2**53
_SHOWN = 16  # choices in an error


def positive(field: str, value: float) -> float:
    """A finite number above 0."""
    if not (_is_finite(value) and value > 0):
        raise InputError(f"{field} = {_short(value)} must be a finite number above 0.")
    return float(value)


def probability(field: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    if not (_is_finite(value) and 0 < value < 1):
        raise InputError(f"{field} = {_short(value)} must lie strictly between 0 and 1.")
    return float(value)


def rate(field: str, value: float, at_most: float = 1.0, limit: str = "") -> float:
    """A sampling rate: above 0 and not above `at_most`, which is called `limit`."""
    if not (_is_finite(value) and 0 < value <= at_most):
        bound = f"{limit} = {at_most:g}" if limit else f"{at_most:g}"
        raise InputError(f"{field} = {_short(value)} must be above 0 and at most {bound}.")
    return float(value)


def whole(field: str, value: int, low: int, high: int | None = None) -> int:
    """A whole number from `low` to `high`."""
    allowed = f"at least {low}" if high is None else f"from {low} to {high}"
    is_whole = _is_finite(value) and value == math.floor(value)
    if not is_whole or value < low or (high is not None and value > high):
        raise InputError(f"{field} = {_short(value)} must be a whole number, {allowed}.")
    return int(value)


def one_of(field: str, value: str, allowed: Iterable[Choice], besides: str = "") -> Choice:
    """One of a few words; a near miss is told which word it is near, and what else could stand there besides."""
    choices = list(allowed)
    for choice in choices:
        if value == choice:
            return choice
    more = f", … ({len(choices)} in all)" if len(choices) > _SHOWN else ""
    listed = ", ".join(choices[:_SHOWN])
    raise InputError(f"{field} = {value!r} must be one of {listed}{more}{besides}.{suggestion(value, choices)}")


def suggestion(word: object, known: Iterable[str]) -> str:
    """A sentence that offers the nearest known word, or nothing."""
    near = get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _is_finite(value: object) -> bool:
    """Whether this is a number (a truth value is not) that a double can hold."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}…"
