"""A progress bar on a terminal; a plain line now and then anywhere else; nothing where machines read."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nestegg.callbacks import Callback

if TYPE_CHECKING:
    from nestegg.config import Config
    from nestegg.experiments.cells import Cell
    from nestegg.training import RoundReport, State


_EVERY = 10  # rounds between plain lines


class _Hearing(logging.Handler):
    """Hands what the library says to whoever shows it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.say = say

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())


@contextmanager
def hearing(say: Callable[[str], None]) -> Iterator[None]:
    """Show what the library has to say meanwhile."""
    logger, handler = logging.getLogger("nestegg"), _Hearing(say)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Display:
    """What is done and what is left, on stderr."""

    def __init__(self, total: int | None, done: int = 0, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.progress.add_task("Training", total=total, completed=done, facts="")

    def __enter__(self) -> Self:
        self._heard = hearing(self.hear)
        self._heard.__enter__()
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        self._heard.__exit__(kind, error, trace)

    def hear(self, sentence: str) -> None:
        """Take note of what a single run says: where there are many, nothing of it is shown."""

    def say(self, sentence: str) -> None:
        """Something the user should know."""
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)


class RoundProgress(_Display, Callback):
    """Shows rounds as they finish."""

    def __init__(self, quiet: bool = False, total: int | None = None) -> None:
        super().__init__(total, quiet=quiet)

    def hear(self, sentence: str) -> None:
        """Show what the run says."""
        self.say(sentence)

    def on_round(self, state: State, report: RoundReport) -> None:
        """Show that one more round is done."""
        spent = max(report.epsilon_spent.values())
        privacy = f"ε up to {spent:.2f}" if math.isfinite(spent) else "no privacy"
        facts = f"{quality(report.accuracy, report.loss)}, {privacy}"
        self.progress.update(self.task, advance=1, facts=facts)
        if not self.console.is_terminal and report.round % _EVERY == 0:
            self.say(f"Training, round {report.round}: {facts}")


def quality(accuracy: float | None, loss: float | None) -> str:
    """Say how good a model is on public test data, by what is known of it."""
    if accuracy is not None:
        return f"accuracy {accuracy:.1f} %"
    return "no test data" if loss is None else f"loss {loss:.4g}"


class RunProgress(_Display):
    """Shows trainings of several as they finish."""

    def __init__(self, total: int, done: int = 0, quiet: bool = False) -> None:
        super().__init__(total, done, quiet)
        self.total, self.done = total, done

    def one_more(self, what: str, facts: str) -> None:
        """One more is done."""
        self.done += 1
        self.progress.update(self.task, advance=1, description=what, facts=facts)
        if not self.console.is_terminal:
            self.say(f"{self.done} of {self.total}: {what}: {facts}")


class CellProgress(RunProgress):
    """Shows cells as they finish."""

    def __init__(self, total: int, done: int) -> None:
        super().__init__(total, done)
        if done < total:
            self.say(f"{done} of {total} cells are there.")

    def show(self, config: Config, cell: Cell) -> None:
        """One more cell is done."""
        what = f"{config.federation.dataset}, {config.privacy.method}, seed {cell.seed}"
        self.one_more(what, f"{cell.final:.2f} %, {cell.seconds:.0f} s")
