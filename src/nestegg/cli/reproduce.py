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
from nestegg.cli.progress import CellProgress
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs
from nestegg.files import make_folder

if TYPE_CHECKING:
    from nestegg.config import Config
    from nestegg.experiments.cells import Store
    from nestegg.experiments.definition import Experiment
    from nestegg.experiments.outcomes import Outcome


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE|FIGURE|all", help="What to reproduce; see --list.")
    ] = None,
    scale: Annotated[str, typer.Option(help="full: the paper's; cpu: reduced, as stated; smoke: a test.")] = "cpu",
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
    redraw: Annotated[bool, typer.Option("--redraw", help="Train nothing: draw what finished cells give.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the tables and figures, and stop.")] = False,
) -> None:
    """Run the paper's evaluation, cell by cell; what is finished is not run again."""
    needs("nestegg reproduce", *RUNS)
    from nestegg.config import changed
    from nestegg.experiments import definition
    from nestegg.experiments.cells import Store
    from nestegg.experiments.outcomes import outcome_of
    from nestegg.experiments.outputs import write_outcome, write_page
    from nestegg.experiments.runner import run_cells
    from nestegg.experiments.scales import SCALES
    from nestegg.training.performance import cores

    console = Console()
    one_of("--scale", scale, SCALES)
    if show_list:
        _list(console, scale, Store(results))
        return
    if name is None:
        raise InputError("name a table or figure, or all of them with `all`; --list shows which there are.")
    names = definition.names() if name == "all" else [name]
    experiments = _experiments(names, only)
    chosen = {one: _seeds(experiment, seeds) for one, experiment in experiments.items()}
    jobs = (cores() if device == "cpu" else 1) if jobs is None else whole("--jobs", jobs, 1, 256)
    configs = [
        changed(changed(config, "federation", data=data), "training", device=device)
        for config in _configs(experiments, chosen, scale)
    ]
    make_folder("--out", out)
    store = Store(results)
    if not redraw:
        with CellProgress(len(configs), sum(store.get(config) is not None for config in configs)) as progress:
            run_cells(configs, store, jobs, progress.show)
    outcomes = [outcome_of(one, experiment, scale, chosen[one], store) for one, experiment in experiments.items()]
    pictures = [write_outcome(out, outcome) for outcome in outcomes]
    for outcome in outcomes:
        _show(console, outcome)
    page = write_page(out, outcomes, pictures)
    console.print(f"Tables, charts and a page: {escape(str(page))}", highlight=False, soft_wrap=True)


def _experiments(names: list[str], only: str | None) -> dict[str, Experiment]:
    """By name, as far as they have what is asked for."""
    from nestegg.experiments import definition

    loaded = {definition.name_of(Path(one)): definition.load(one) for one in names}
    chosen = {name: experiment.only(only) for name, experiment in loaded.items()}
    if not any(chosen.values()):
        one_of("--only", only or "", dict.fromkeys(h for experiment in loaded.values() for h in experiment.handles()))
    return {name: experiment for name, experiment in chosen.items() if experiment is not None}


def _configs(experiments: dict[str, Experiment], seeds: dict[str, list[int]], scale: str) -> list[Config]:
    """Every cell once, the first seed of everything first."""
    from nestegg.experiments.cells import hash_of
    from nestegg.experiments.outcomes import configs_of

    wanted: dict[tuple[int, int, str], Config] = {}
    for name, experiment in experiments.items():
        made = configs_of(experiment, scale, seeds[name])
        if experiment.trains:
            for configs in made.values():
                for order, config in enumerate(configs):
                    wanted.setdefault((order, config.training.seed, hash_of(config)), config)
    return [wanted[key] for key in sorted(wanted, key=lambda key: key[0])]


def _list(console: Console, scale: str, store: Store) -> None:
    from nestegg.experiments import definition
    from nestegg.experiments.outcomes import configs_of

    table = Table(box=box.SIMPLE_HEAD)
    for head in ("name", "what it is in the paper", f"cells at scale {scale}"):
        table.add_column(head, justify="right" if head.startswith("cells") else "left")
    for name in definition.names():
        experiment = definition.load(name)
        made = configs_of(experiment, scale, experiment.seeds)
        cells = {store.path(config): config for some in made.values() for config in some}
        done = sum(store.get(config) is not None for config in cells.values())
        count = f"{done} of {len(cells)}" if experiment.trains else "plans only"
        table.add_row(name, escape(experiment.source), count)
    console.print(table)


def _show(console: Console, outcome: Outcome) -> None:
    from nestegg.experiments.outputs import DUELS, NUMBERS, duel_rows, number_rows, tables

    experiment = outcome.experiment
    console.print(f"\n[bold]{escape(experiment.title)}[/]  {escape(outcome.name)}", highlight=False)
    for sentence in (*outcome.reductions, *outcome.formats):
        console.print(f"[dim]{escape(sentence)}[/]", highlight=False)
    if not experiment.trains:
        for heads, rows in tables(outcome):
            _print(console, heads[1:], rows)
        return
    verdicts = {line.row.label: line.verdict for line in outcome.lines}
    numbers = [(f"{row[0]}: {verdicts[row[0]]}", *row[1:-2]) for row in number_rows(outcome)]
    _print(console, NUMBERS[1:-2], numbers)  # formats are above
    if duels := duel_rows(outcome):
        _print(console, DUELS[1:-1], [row[:-1] for row in duels])  # hashes are above


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


def _seeds(experiment: Experiment, count: int | None) -> list[int]:
    """The first of the experiment's seeds; beyond them, those that follow."""
    if count is None:
        return experiment.seeds
    whole("--seeds", count, 1, 1000)
    return [*experiment.seeds, *range(experiment.seeds[-1] + 1, experiment.seeds[-1] + count)][:count]
