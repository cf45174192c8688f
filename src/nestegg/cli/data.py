"""`nestegg data`: bring a public dataset to this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from nestegg.extras import needs

app = typer.Typer(name="data", help="Public datasets.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Public datasets."""


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, adult or cifar10.")],
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to; by default $NESTEGG_DATA or the cache folder.")
    ] = None,
) -> None:
    """Download a dataset from its public home, check its sums, and go on where an earlier try broke off."""
    needs("nestegg data", "train")
    from nestegg.data.catalogue import VARIABLE
    from nestegg.data.download import download
    from nestegg.files import cache_folder

    place = folder or Path(os.environ.get(VARIABLE) or cache_folder())
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        download(
            name, place, lambda file, have, total: progress.update(task, description=file, completed=have, total=total)
        )
    Console().print(f"{name} is in {place}.", highlight=False, markup=False, soft_wrap=True)
