"""Callbacks: what hears of a run's rounds, and may stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nestegg.training import Federation, RoundReport, State


class Callback:
    """What is told of a training; every method does nothing by default.

    A round is told of only after it is released: paid for, saved, and in the ledger.

    >>> class Patience(Callback):
    ...     def on_round(self, state, report):
    ...         return report.round >= 7  # enough
    """

    def on_start(self, federation: Federation, state: State) -> None:
        """Hear that training starts, or goes on, from a state."""

    def on_round(self, state: State, report: RoundReport) -> bool | None:
        """Hear of a round; whoever returns True ends the training after it."""

    def on_end(self, state: State) -> None:
        """Hear that training has ended, at its last round or before."""
