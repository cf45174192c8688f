"""A progress bar on a terminal; a plain line now and then anywhere else; nothing where machines read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from nestegg.configuration.config import Config
    from nestegg.experiments.cells import Cell


class _Hearing(logging.Handler):
    """Hands what the library says to whoever shows it."""

    def __init__(self, say: Callable[[str], None], level: int) -> None:
        super().__init__(level)
        self.say = say

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())


@contextmanager
def hearing(say: Callable[[str], None]) -> Iterator[None]:
    """Show what the library has to say meanwhile."""
    logger, handler = logging.getLogger("nestegg"), _Hearing(say, logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def watching_index(show: Callable[[str], None]) -> Iterator[None]:
    """Show how far the index of a big file is, which is made meanwhile."""
    logger, handler = logging.getLogger("nestegg.index"), _Hearing(lambda said: show(escape(said)), logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class Display:
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
        self._heard = ExitStack()
        self._heard.enter_context(hearing(self.hear))
        self._heard.enter_context(watching_index(lambda facts: self.progress.update(self.task, facts=facts)))
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


class RunProgress(Display):
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
