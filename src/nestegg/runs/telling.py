"""Whom a run tells what: its user, in sentences, and its callbacks, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from logging import getLogger
from typing import Any

from nestegg.training import Callback, Federation, RoundReport, State
from nestegg.training.callbacks import checked_callbacks

_LOG = getLogger("nestegg")


class CallbackError(Exception):
    """A callback raised; the message says which, and what."""


def say(sentences: Iterable[str]) -> None:
    """Tell the user something: it goes to the logger `nestegg`, which the command line shows."""
    for sentence in sentences:
        _LOG.warning(sentence)


class Telling:
    """Tells callbacks of a training, in their order.

    Raises:
        CallbackError: one of them raised.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = checked_callbacks(callbacks)
        self._last: State | None = None

    def start(self, federation: Federation, state: State) -> None:
        """Tell of the start."""
        self._last = state
        self._call("on_start", federation, state)

    def round(self, state: State, report: RoundReport) -> str | None:
        """Tell of a round; return the name of the first callback that wants to stop."""
        self._last = state
        return next(iter(self._call("on_round", state, report)), None)

    def end(self) -> None:
        """Tell of the end, once, if there was a start."""
        if (last := self._last) is not None:
            self._last = None
            self._call("on_end", last)

    def _call(self, what: str, *about: Any) -> list[str]:
        """Call a method of all; returns the names of those that want to stop. Each has a state of its own."""
        answers = []
        for callback in self._callbacks:
            name = type(callback).__name__
            try:
                given = (one.copy() if isinstance(one, State) else one for one in about)
                if getattr(callback, what)(*given) and what == "on_round":
                    answers.append(name)
            except Exception as error:
                raise CallbackError(f"The callback {name} raised {type(error).__name__}: {error}.") from error
        return answers
