"""`nestegg flower`: what a client's owner may want to do about its account."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nestegg.errors import InputError

app = typer.Typer(name="flower", help="A client's own account on Flower.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Keep `nestegg flower` a group of commands, even while it has one."""


@app.command()
def leave(
    account: Annotated[Path, typer.Argument(help="Folder of the account, as in --node-config.")],
    run: Annotated[str, typer.Argument(help="The run, as `nestegg ledger show` names it.")],
    after: Annotated[int, typer.Option(help="The last round that it reached.")],
) -> None:
    """Leave a run that was given up: it is paid up to that round, and never answered again."""
    try:
        from nestegg.flower import Account, Guard
        from nestegg.flower.guard import OWN_NAME
    except ModuleNotFoundError:
        raise InputError("Flower is not installed: pip install 'nestegg[flower]'.") from None
    from nestegg.ledger import Ledger

    with Ledger(account / "ledger.db", read_only=True) as ledger:
        budget = ledger.account(OWN_NAME).budget  # leaving changes no budget
    Guard(Account(account, budget)).leave(run, after)
    typer.echo(f"Run {run} is left after round {after}.")
