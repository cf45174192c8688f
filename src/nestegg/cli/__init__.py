"""The command line: one thin file per command. A user's mistake is one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from nestegg.cli.plan import plan
from nestegg.cli.verify import verify
from nestegg.errors import InputError, VerificationError

app = typer.Typer(
    name="nestegg",
    help="Federated learning in which every client has its own privacy budget and decides when to spend it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(plan)
app.command()(verify)


@app.callback()
def _root() -> None:
    """Keep `nestegg` a program of commands, even while it has few."""


def main() -> None:
    """Run the program: exit code 0 if all is well, 1 if a plan does not hold, 2 if the user must change something."""
    try:
        app()
    except InputError as error:
        _fail(str(error), 2)
    except VerificationError as error:
        _fail(str(error), 1)


def _fail(sentence: str, code: int) -> None:
    Console(stderr=True, soft_wrap=True).print(
        f"[bold red]Error:[/] {sentence.replace('[', chr(92) + '[')}", highlight=False
    )
    sys.exit(code)
