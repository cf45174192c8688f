"""`nestegg studio`: look at plans, runs and accounts in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.extras import RUNS, needs


def studio(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Below which runs are looked for.")] = Path(),
    ledger: Annotated[
        str | None,
        typer.Option(envvar="NESTEGG_LEDGER", metavar="URL", help="A ledger to show, by URL or file."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on this machine; 0 is a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """See a plan before you train, a run while it trains, and who has spent what; on this machine only."""
    needs("nestegg studio", *RUNS, "studio")
    from nestegg.studio.serve import serve

    if ledger is not None and "://" not in ledger and not Path(ledger).is_file():
        Console(stderr=True, soft_wrap=True).print(f"There is no ledger at {ledger} yet.", markup=False)
    serve(folder, ledger=ledger, port=port, browser=browser, say=_say)


def _say(link: str) -> None:
    print(f"The studio is at {link}\nCtrl+C ends it.", flush=True)
