"""`nestegg reproduce`: the paper's tables and figures, from one command."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nestegg.checks import one_of, whole
from nestegg.cli.options import Where
from nestegg.cli.progress import CellProgress
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs
from nestegg.files import make_folder

if TYPE_CHECKING:
    from nestegg.experiments.outcomes import Outcome
    from nestegg.experiments.reproduction import Reproduction


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE|FIGURE|all", help="What to reproduce; see --list.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="full: the paper's; day: one local epoch; cpu: fewer images too; smoke: a test.")
    ] = "cpu",
    seeds: Annotated[int | None, typer.Option(help="How many of the experiment's seeds; all by default.")] = None,
    only: Annotated[str | None, typer.Option(metavar="NAME", help="The rows of one dataset, or one row.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Cells at a time; one for each core by default.")] = None,
    device: Annotated[str, typer.Option(help="Where to train: cpu, or cuda for the paper's own scale.")] = "cpu",
    data: Annotated[str | None, typer.Option(metavar="DIR", help="Where the datasets lie.")] = None,
    results: Annotated[Path, typer.Option(metavar="DIR", help="Finished cells, and where new ones go.")] = Path(
        "results"
    ),
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of tables, charts and the page.")] = Path(
        "reproduction"
    ),
    cluster: Where = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Train nothing: draw what finished cells give.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the tables and figures, and stop.")] = False,
) -> None:
    """Run the paper's evaluation, cell by cell; what is finished is not run again."""
    needs("nestegg reproduce", *RUNS, *([] if cluster is None else ["cluster"]))
    from nestegg.configuration.config import changed
    from nestegg.experiments.cells import Store
    from nestegg.experiments.pages import write_outcomes
    from nestegg.experiments.reproduction import Reproduction, chosen_experiments
    from nestegg.experiments.runner import run_cells
    from nestegg.experiments.scales import SCALES
    from nestegg.training.performance import cores

    console, store = Console(), Store(results)
    one_of("--scale", scale, SCALES)
    if show_list:
        _list(console, Reproduction(chosen_experiments("all"), scale, store))
        return
    if name is None:
        raise InputError("name a table or figure, or all of them with `all`; --list shows which there are.")
    wanted = Reproduction(chosen_experiments(name, only, seeds), scale, store)
    jobs = (cores() if device == "cpu" else 1) if jobs is None else whole("--jobs", jobs, 1, 256)
    trained = wanted.at_scale() if name == "all" else wanted
    configs = [
        changed(changed(config, "federation", data=data), "training", device=device) for config in trained.configs()
    ]
    make_folder("--out", out)
    if not redraw:
        with CellProgress(len(configs), store.count(configs)) as progress:
            run_cells(configs, store, jobs, progress.show, cluster)
    outcomes = wanted.outcomes()
    page = write_outcomes(out, outcomes)
    for outcome in outcomes:
        _show(console, outcome)
    console.print(f"Tables, charts and a page: {escape(str(page))}", highlight=False, soft_wrap=True)


def _list(console: Console, everything: Reproduction) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("name", "what it is in the paper", f"cells at scale {everything.scale}"):
        table.add_column(head, justify="right" if head.startswith("cells") else "left")
    for name, (done, cells) in everything.counts().items():
        table.add_row(
            name, escape(everything.experiments[name].source), f"{done} of {cells}" if cells else "plans only"
        )
    console.print(table)


def _show(console: Console, outcome: Outcome) -> None:
    from nestegg.experiments.rows import DUELS, NUMBERS, duel_rows, number_rows
    from nestegg.experiments.views import view_of

    experiment = outcome.experiment
    console.print(f"\n[bold]{escape(experiment.title)}[/]  {escape(outcome.name)}", highlight=False)
    for sentence in (*outcome.reductions, *outcome.formats):
        console.print(f"[dim]{escape(sentence)}[/]", highlight=False)
    if not experiment.trains:
        for heads, rows in view_of(outcome).tables(outcome):
            _print(console, heads[1:], rows)
        return
    numbers = [
        (": ".join((label, ", ".join(filter(None, (verdict, note))))), *cells)
        for label, *cells, _, verdict, note in number_rows(outcome)
    ]
    _print(console, NUMBERS[1:-3], numbers)  # formats are above
    if duels := duel_rows(outcome):
        names = [[cell.partition("\n")[0] for cell in row] for row in duels]  # hashes are above
        _print(console, DUELS[1:], names)


def _print(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for all rows that begin with the same words, which are its title."""
    for title, some in groupby(rows, key=lambda row: row[0]):
        table = Table(box=box.SIMPLE_HEAD, title=escape(title), title_justify="left", title_style="bold")
        for head in heads:
            words = head in ("method", "rival", "verdict")
            table.add_column(head, justify="left" if words else "right", no_wrap=not words)
        for row in some:
            table.add_row(*map(escape, row[1:]))
        console.print(table)
