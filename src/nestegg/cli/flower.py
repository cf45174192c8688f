"""`nestegg flower`: what a client's owner may want to do about its account."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nestegg.errors import InputError

if TYPE_CHECKING:
    from nestegg.flower import Guard

app = typer.Typer(name="flower", help="A client's own account on Flower.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder of the account, as in --node-config.")]


@app.command()
def leave(
    account: Folder,
    run: Annotated[str, typer.Argument(help="The run, as `nestegg ledger show` names it.")],
    after: Annotated[int, typer.Option(help="The last round that it reached.")],
) -> None:
    """Leave a run that was given up: it is paid up to that round, and never answered again."""
    _guard(account).leave(run, after)
    typer.echo(f"Run {run} is left after round {after}.")


@app.command()
def withdraw(
    account: Folder,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it stands in the account.")],
    author: Annotated[str | None, typer.Option(metavar="NAME", help="Else $NESTEGG_AUTHOR or the login name.")] = None,
) -> None:
    """Withdraw for good: no offer and no order is answered again. Runs that were not left are paid to their end."""
    _guard(account).withdraw(reason, author)
    typer.echo("This client has withdrawn.")


def _guard(folder: Path) -> Guard:
    """The guard of an account, whose budget stays as it is."""
    from nestegg.flower import Guard, OwnAccount
    from nestegg.flower.guard import OWN_NAME
    from nestegg.ledger import Ledger

    if not (folder / "ledger.db").is_file():
        raise InputError(f"{folder} holds no account: there is no ledger.db in it.")
    with Ledger(folder / "ledger.db") as ledger:
        budget = ledger.account(OWN_NAME).budget
    return Guard(OwnAccount(folder, budget))
