"""Callbacks for tests."""

from __future__ import annotations

from collections.abc import Callable

from nestegg.training import Callback, RoundReport, State


class EachRound(Callback):
    """Calls a function with the report of every round."""

    def __init__(self, call: Callable[[RoundReport], object]) -> None:
        self.call = call

    def on_round(self, state: State, report: RoundReport) -> None:
        self.call(report)
