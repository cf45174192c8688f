"""A progress bar on a terminal; a plain line now and then anywhere else; nothing where machines read."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from nestegg.training import RoundReport


class RoundProgress:
    """Shows rounds as they finish."""

    def __init__(self, quiet: bool = False, total: int | None = None) -> None:
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
        self.task = self.progress.add_task("Training", total=total, facts="")

    def __enter__(self) -> RoundProgress:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def show(self, report: RoundReport, label: str = "Training") -> None:
        """One more round is done."""
        spent = max((e for e in report.epsilon_spent.values() if e is not None), default=0.0)
        facts = f"accuracy {report.accuracy:.1f} %, ε up to {spent:.2f}"
        self.progress.update(self.task, advance=1, description=label, facts=facts)
        if not self.console.is_terminal and (report.round % 10 == 0 or report.round == 1):
            self.console.print(f"{label}, round {report.round}: {facts}", highlight=False)
