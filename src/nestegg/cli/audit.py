"""`nestegg audit`: attack what a plan promises, and say what was tried."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from nestegg.cli.options import Where
from nestegg.errors import InputError, VerificationError
from nestegg.extras import RUNS, needs

if TYPE_CHECKING:
    from nestegg.audit import Clock

_SECONDS, _THOROUGH = 60.0, 600.0


def audit(
    subject: Annotated[
        Path | None, typer.Argument(metavar="PLAN|CONFIG|RUN", help="A plan, a configuration or a run's folder.")
    ] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Take ten minutes instead of one.")] = False,
    groups: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Attack this group; may be repeated.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Take about so many seconds.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of audit.json and audit.html; of a run, its own.")
    ] = None,
    cluster: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON and nothing else.")] = False,
) -> None:
    """Attack what a plan promises, on the real code, group by group. Exit code 1 if it is refuted."""
    needs("nestegg audit", *RUNS, *([] if cluster is None else ["cluster"]))
    from nestegg.audit import Clock, write_audit  # torch is slow to import; other commands do without it
    from nestegg.audit import audit as attacked
    from nestegg.audit.subjects import subject_of
    from nestegg.runs.signing import signature_of

    if thorough and seconds is not None:
        raise InputError(f"--thorough takes {_THOROUGH:g} seconds: --seconds {seconds:g} must be left out beside it.")
    usual = _THOROUGH if thorough else _SECONDS
    clock = Clock(usual if seconds is None else seconds)
    if out is not None and out.exists() and not out.is_dir():  # said now, not after a minute
        raise InputError(f"--out {out} must be a folder; it is a file.")
    known = subject_of(subject, cluster)
    folder = out or known.folder or Path(f"{known.name}-audit")
    if signature_of(folder / "statement.json").is_file():
        raise InputError(f"{folder} has a signed statement, which names its audit: give --out DIR for another audit.")
    clock = Clock(clock.seconds)  # loading data takes no time from the attacks
    with _stoppable(clock), _progress(as_json) as tell:
        found = attacked(known.what, groups=groups or (), clock=clock, folder=known.run, tell=tell)
    content = found.to_dict() | dict(known.stamp)
    content["not_attacked"] += known.left_out
    write_audit(folder, content, known.name, is_run=folder == known.folder)
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        _show(Console(), content, folder)
    if content["refuted"]:
        said = next(one for one in content["findings"] if one["refutes"])
        whose = f", group {said['group']!r}" if said["group"] else ""
        raise VerificationError(f"the promise is refuted by {said['attack']} ({said['arm']}{whose}): {said['says']}.")


@contextmanager
def _stoppable(clock: Clock) -> Iterator[None]:
    """Let an interruption end the audit with what was found so far; a second one ends it at once."""

    def stop(number: int, frame: Any) -> None:
        clock.stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("Attacking", total=1.0)

        def tell(what: str, share: float) -> None:
            progress.update(task, description=f"Attacking: {what}", completed=share)

        yield tell


def _show(console: Console, content: dict[str, Any], folder: Path) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("group")
    for head in ("trials", "budget ε", "claimed ε", "ε at least", "attacks", "succeeded", "smallest p"):
        table.add_column(head, justify="right")
    for one in content["evidence"]:
        own = [finding for finding in content["findings"] if finding["group"] == one["group"]]
        p = min((finding["p_corrected"] for finding in own if finding["p_corrected"] is not None), default=1.0)
        numbers = (f"{one[name]:.2f}" for name in ("epsilon", "by_counting"))
        counts = (str(len(own)), str(sum(finding["refutes"] for finding in own)))
        table.add_row(escape(one["group"]), f"{one['trials']:,}", f"{one['budget']:g}", *numbers, *counts, f"{p:.3g}")
    if content["evidence"]:
        console.print(table)
    for one in content["findings"]:
        if one["refutes"]:
            said = escape(f"{one['arm']}, {one['attack']}: {one['says']}.")
            console.print(f"[red]Refuted[/] {said}", highlight=False, soft_wrap=True)
    for line in content["not_attacked"]:
        console.print(f"Not attacked: {line}.", highlight=False, markup=False, soft_wrap=True)
    count, refuted = len(content["findings"]), sum(one["refutes"] for one in content["findings"])
    console.print(
        f"{count} attacks in {content['seconds']:.0f} s, {refuted or 'none'} succeeded, at one false alarm in "
        f"{1 / content['false_alarms']:.0f} audits. {content['caveat']} See {folder / 'audit.html'}.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
