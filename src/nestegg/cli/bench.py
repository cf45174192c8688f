"""`nestegg bench`: the same rounds with other simulators; where the time goes; how it grows; every kernel."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nestegg.checks import one_of, whole
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs
from nestegg.files import make_folder

if TYPE_CHECKING:
    from nestegg.bench.simulators import Simulator

_KINDS = ("peers", "profile", "growth", "kernels")


def bench(
    kind: Annotated[str, typer.Argument(metavar="[peers|profile|growth|kernels]", help="What to measure.")] = "peers",
    works: Annotated[
        str, typer.Option(help="Pieces of work, separated by commas.")
    ] = "mlp,cnn,uneven,many,resnet20,softmax,tanh-cnn",
    peers: Annotated[str, typer.Option(help="Simulators beside ours, separated by commas; or all, or none.")] = "all",
    rounds: Annotated[int, typer.Option(help="Rounds to time; their median counts.")] = 5,
    precisions: Annotated[str, typer.Option(help="Of ours: fp32; with bf16, that too where it makes sense.")] = "fp32",
    data: Annotated[str | None, typer.Option(metavar="DIR", help="Where the files of Adult lie.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of tables and charts.")] = Path("bench-results"),
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where other simulators are installed, and stay.")
    ] = None,
) -> None:
    """Measure a round: against other simulators on identical work, where its time goes, how it grows, every kernel."""
    one_of("what to measure", kind, _KINDS)
    needs("nestegg bench", *RUNS, "bench")
    from nestegg.bench.simulators import default_cache

    console, place = Console(), cache or default_cache()
    if kind == "growth":
        _growth(console, place, out)
    elif kind == "kernels":
        _kernels(console, out)
    elif kind == "profile":
        _profile(console, _names(works), data)
    else:
        whole("rounds", rounds, 1, 1000)
        chosen = _simulators(_names(peers), _names(precisions))
        _peers(console, chosen, _names(works), rounds=rounds, data=data, out=out, cache=place)


def _simulators(peers: list[str], precisions: list[str]) -> list[Simulator]:
    from nestegg.bench.simulators import chosen_simulators
    from nestegg.training.performance import PRECISIONS, cores

    for precision in precisions:
        one_of("precisions", precision, PRECISIONS)
    return chosen_simulators(peers, cores(), "bf16" in precisions)


def _peers(
    console: Console,
    simulators: list[Simulator],
    works: list[str],
    *,
    rounds: int,
    data: str | None,
    out: Path,
    cache: Path,
) -> None:
    from nestegg.bench.contest import contest
    from nestegg.bench.machine import machine
    from nestegg.bench.scores import COLUMNS, save_scores, score_row
    from nestegg.bench.works import missing_data

    make_folder("--out", out)
    absent = missing_data(works, data)
    if len(absent) == len(works):
        raise InputError(" ".join(absent.values()))
    _left_out(console, absent.items())  # now, not after half an hour
    done = []
    with console.status("") as status:
        for work in [work for work in works if work not in absent]:
            done.append(contest(work, simulators, rounds, cache, data, lambda line: status.update(escape(line))))
            save_scores(out, done)
    console.print(_table(COLUMNS, (score_row(one, entry) for one in done for entry in one.entries)))
    _left_out(console, ((one.work, reason) for one in done for reason in one.missing.values()))
    console.print(f"{machine()}.\nTables and chart are in {escape(str(out))}.", highlight=False, soft_wrap=True)


def _left_out(console: Console, reasons: Iterable[tuple[str, str]]) -> None:
    for work, reason in reasons:
        console.print(f"[yellow]{work}:[/] {escape(reason)}", highlight=False, soft_wrap=True)


def _profile(console: Console, works: list[str], data: str | None) -> None:
    from nestegg.bench.profile import PARTS, profile_round

    profiles = []
    with console.status("") as status:
        for work in works:
            status.update(f"{work} …")
            profiles.append(profile_round(work, data))
    rows = [
        (p.work, f"{p.seconds:.3f}", *(f"{p.parts.get(part, 0.0):.1%}" for part in PARTS), f"{p.privacy:.1%}")
        for p in profiles
    ]
    console.print(_table(("work", "seconds, one core", *PARTS, "all but training"), rows))
    for one in profiles:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in one.operations.items())
        console.print(f"[bold]{one.work}[/]: {escape(shares)}", highlight=False, soft_wrap=True)


def _growth(console: Console, cache: Path, out: Path) -> None:
    from nestegg.bench.growth import TITLES, growth
    from nestegg.bench.growth_charts import power, save_growth, series
    from nestegg.bench.machine import machine

    make_folder("--out", out)
    with console.status("") as status:
        points = list(growth(cache, status.update))
    save_growth(out, points)
    rows = [(p.varied, f"{p.value:,}", f"{p.seconds:.4f}", f"{p.megabytes:,.0f} MB") for p in points]
    console.print(_table(("varied", "to", "seconds", "memory"), rows))
    for varied, some in series(points).items():
        powers = f"seconds grow by the power {power(some, 'seconds'):.2f}, memory by {power(some, 'megabytes'):.2f}"
        console.print(f"{TITLES[varied]}: {powers}, from the last point but one.", highlight=False, soft_wrap=True)
    console.print(f"{machine()}.\nTable and charts are in {escape(str(out))}.", highlight=False, soft_wrap=True)


def _kernels(console: Console, out: Path) -> None:
    from nestegg.bench.kernels import SHAPES, columns, compare_kernels, save_kernels
    from nestegg.bench.machine import machine

    make_folder("--out", out)
    with console.status("Training, each in turn …"):
        done = list(compare_kernels(SHAPES))
    save_kernels(out, done)
    console.print(_table(columns(), (one.row() for one in done)))
    console.print(f"{machine()}.\nThe table is in {escape(str(out))}.", highlight=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"{text!r} names nothing; give names, separated by commas.")
    return names


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for cells in rows:
        table.add_row(*map(escape, cells))
    return table
