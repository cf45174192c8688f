"""The progress of one run, as a callback."""

from __future__ import annotations

import math

from nestegg.cli.progress import Display
from nestegg.training import Callback, Federation, RoundReport, State

_EVERY = 10  # rounds between plain lines


class RoundProgress(Display, Callback):
    """Shows rounds as they finish, and what the run has to say."""

    def __init__(self, quiet: bool = False, total: int | None = None) -> None:
        super().__init__(total, quiet=quiet)
        self._rounds = 0

    def on_start(self, federation: Federation, state: State) -> None:
        """Hear of how many rounds there are in all."""
        self._rounds = federation.plan.rounds

    def hear(self, sentence: str) -> None:
        """Show what the run says."""
        self.say(sentence)

    def on_round(self, state: State, report: RoundReport) -> None:
        """Show that one more round is done."""
        spent = max(report.epsilon_spent.values())
        privacy = f"ε up to {spent:.2f}" if math.isfinite(spent) else "no privacy"
        facts = ", ".join([*_quality(report), privacy])
        self.progress.update(self.task, advance=1, facts=facts)
        if not self.console.is_terminal and report.round % _EVERY == 0:
            self.say(f"Training, round {report.round} of {self._rounds}: {facts}")


def _quality(report: RoundReport) -> list[str]:
    """How good the model is on public test data, or else what clients say of the model before the round, if they do."""
    if report.accuracy is not None:
        return [f"accuracy {report.accuracy:.1f} %"]
    if report.loss is not None:
        return [f"loss {report.loss:.4g}"]
    if "accuracy" not in report.side:
        return []
    said = report.side
    return [
        f"clients' accuracy {said['accuracy']:.1f} ± {said['accuracy_std']:.1f} %",
        f"loss {said['loss']:.2f} ± {said['loss_std']:.2f}",
    ]
