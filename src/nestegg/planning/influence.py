"""How much of a round's noise is still in the final model: by one number, or as it was measured on public data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nestegg.accounting import Array
from nestegg.errors import InputError

FORMAT = "nestegg-influence/1"


def forgetting(memory: float, learning_rate: Sequence[float]) -> Array:
    """Return w_t = exp(−κ R_t), R_t the share of all learning rates that comes after round t.

    >>> forgetting(1.0, [1.0, 1.0]).round(3).tolist()
    [0.607, 1.0]
    """
    rates = np.array(learning_rate, np.float64)
    after = rates.sum() - np.cumsum(rates)
    return np.asarray(np.exp(-memory * np.maximum(after, 0.0) / rates.sum()))


def fitted_memory(influence: Sequence[float], learning_rate: Sequence[float]) -> float:
    """Return the κ whose curve is nearest to a measured one, by least squares of w_t.

    >>> rates = [1.0, 0.8, 0.5, 0.2]
    >>> round(fitted_memory(forgetting(3.0, rates), rates), 3)
    3.0
    """
    measured = np.array(influence, np.float64) / max(influence)
    kappas = np.linspace(0.0, 20.0, 2001)
    errors = [float(np.square(forgetting(kappa, learning_rate) - measured).sum()) for kappa in kappas]
    return float(kappas[int(np.argmin(errors))])


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
