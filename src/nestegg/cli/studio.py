"""`nestegg studio`: look at plans, runs and accounts in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.cli.ledger import ledger_at
from nestegg.extras import RUNS, needs


def studio(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Below which runs are looked for.")] = Path(),
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="NESTEGG_LEDGER", metavar="URL", help="A ledger to show: a URL, a file, or a run's folder."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 is a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """See a plan before you train, a run while it trains, and who has spent what; on this machine only."""
    needs("nestegg studio", *RUNS, "studio")
    from nestegg.ledger.database import file_of
    from nestegg.studio.serve import serve

    where = None if ledger is None else ledger_at(ledger)
    file = None if where is None else file_of(where)
    if file is not None and not file.is_file():
        Console(stderr=True, soft_wrap=True).print(f"There is no ledger at {file} yet.", markup=False)
    serve(folder, ledger=None if where is None else str(where), port=port, browser=browser, say=_say)


def _say(link: str) -> None:
    print(f"The studio is at {link}\nCtrl+C ends it.", flush=True)
