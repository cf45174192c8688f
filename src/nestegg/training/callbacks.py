"""Callbacks: code of one's own that hears of a training's start, of each round, and of its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nestegg.errors import InputError
from nestegg.training.reports import RoundReport, State

if TYPE_CHECKING:
    from nestegg.training.loop import Federation


class Callback:
    """Hears of a training; override what you need. What it hears has been released, or is for simulations alone.

    In a durable run a round is told of once it is paid, saved and released: whatever happens here, it is not lost.

    >>> class Patient(Callback):
    ...     def on_round(self, state: State, report: RoundReport) -> bool:
    ...         return report.accuracy is not None and report.accuracy > 95.0  # True stops
    """

    def on_start(self, federation: Federation, state: State) -> None:
        """Hear of the federation and of the state that the first round here begins with.

        `federation.model_at(state)` is the model of a state, to be used in any of these functions.
        """

    def on_round(self, state: State, report: RoundReport) -> bool | None:
        """Hear of a round; return True to stop: rounds that are left are not paid for."""
        return None

    def on_end(self, state: State) -> None:
        """Hear of the last state: after the last round, or after whatever stopped the training."""


def told(callbacks: Sequence[Callback], state: State, report: RoundReport) -> str | None:
    """Tell everybody of a round; return the name of the first callback that wants to stop."""
    wishes = [type(one).__name__ for one in callbacks if one.on_round(state.copy(), report)]
    return wishes[0] if wishes else None


def checked_callbacks(callbacks: Iterable[Callback]) -> list[Callback]:
    """Return callbacks, if that is what they are."""
    found = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    if not isinstance(callbacks, Iterable) or not all(hasattr(one, "on_round") for one in found):
        raise InputError("callbacks must be a list of nestegg.callbacks.Callback.")
    return found
