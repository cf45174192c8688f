"""How much of a round's noise is still in the final model: by one number, or as it was measured on public data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nestegg.accounting import Array
from nestegg.errors import InputError
from nestegg.planning.curves import Pace

FORMAT = "nestegg-influence/1"


def forgetting(memory: float, learning_rate: Sequence[float]) -> Array:
    """Return w_t = exp(−κ R_t), R_t the share of all learning rates that comes after round t.

    >>> forgetting(1.0, [1.0, 1.0]).round(3).tolist()
    [0.607, 1.0]
    """
    rates = np.array(learning_rate, np.float64)
    after = rates.sum() - np.cumsum(rates)
    return np.asarray(np.exp(-memory * np.maximum(after, 0.0) / rates.sum()))


def fitted_memory(influence: Sequence[float], pace: Pace) -> float:
    """Return the κ to plan by if w_t is as measured: the one whose schedule lets the least noise into the model.

    Without sampling a schedule by weights v_t c_t costs Σ (w_t c_t)² / (v_t c_t) · Σ v_t c_t.

    >>> pace = Pace((1.0, 0.8, 0.5, 0.2))
    >>> round(fitted_memory(forgetting(3.0, pace.learning_rate), pace), 2)
    3.0
    """
    measured, scale = np.array(influence, np.float64), np.array(pace.clip_scale)
    kappas = np.linspace(0.0, 20.0, 2001)
    curves = np.array([forgetting(kappa, pace.learning_rate) for kappa in kappas])
    costs = (np.square(measured) * scale / curves).sum(axis=1) * (curves * scale).sum(axis=1)
    return float(kappas[int(np.argmin(costs))])


def resampled(influence: Array, rounds: int) -> Array:
    """Return a measured curve for another number of rounds: at the same shares of the training, between its points.

    >>> resampled(np.array([1.0, 3.0]), 4).tolist()
    [1.0, 1.5, 2.5, 3.0]
    """
    if len(influence) == rounds:
        return influence
    places = (np.arange(len(influence)) + 0.5) / len(influence)
    return np.interp((np.arange(rounds) + 0.5) / rounds, places, influence)


def read_influence(given: str | Path | Sequence[float]) -> tuple[float, ...]:
    """Return a measured curve, given as numbers or as the file of `nestegg influence`.

    Raises:
        InputError: the file is damaged, or numbers are negative, not finite, or all zero.
    """
    where = "influence"
    if isinstance(given, str | Path):
        where = f"influence = {str(given)!r}"
        numbers = _from_file(Path(given))
    else:
        numbers = given
    try:
        values = tuple(float(value) for value in numbers)
    except (TypeError, ValueError):
        raise InputError(f"{where} must be a file of `nestegg influence`, or a number for each round.") from None
    if not values or not all(0.0 <= value < np.inf for value in values) or not max(values) > 0.0:
        raise InputError(f"{where} must be numbers from 0 on, not all of them 0.")
    return values


def _from_file(path: Path) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"influence = {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise InputError(f"influence = {str(path)!r} is damaged: {error}.") from None
    numbers = content.get("influence") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(numbers, list):
        raise InputError(f"influence = {str(path)!r} is damaged: it must be a file of `nestegg influence` ({FORMAT}).")
    return numbers
