"""All commands in one program, and how it ends.

Commands import what they work with when they are called: help, completion and the version need none of it.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer
from rich.console import Console

import nestegg
from nestegg.cli import data, flower, ledger
from nestegg.cli.audit import audit
from nestegg.cli.bench import bench
from nestegg.cli.compare import compare
from nestegg.cli.influence import influence
from nestegg.cli.init import init
from nestegg.cli.plan import plan
from nestegg.cli.reproduce import reproduce
from nestegg.cli.run import run as run_command
from nestegg.cli.statement import statement
from nestegg.cli.studio import studio
from nestegg.cli.verify import verify
from nestegg.errors import InputError, StoppedError, VerificationError

_INTERRUPTED, _PIPE = 130, 141  # as shells report SIGINT and SIGPIPE

app = typer.Typer(
    name="nestegg",
    help="Federated learning in which every client has its own privacy budget and decides when to spend it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (init, influence, plan, verify, run_command, compare, audit, statement, studio, reproduce, bench):
    app.command()(command)
app.add_typer(data.app)
app.add_typer(ledger.app)
app.add_typer(flower.app)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"nestegg {nestegg.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version, and stop.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command that was asked for, and turn whatever goes wrong into a sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters gets question marks, not a crash
    try:
        app(prog_name="nestegg")
        sys.stdout.flush()
    except InputError as error:
        _fail(str(error), 2)
    except VerificationError as error:
        _fail(str(error), 1)
    except StoppedError as error:
        _fail(str(error), 3)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except SystemExit as stop:
        # The libraries below end with 1 where the reader of a pipe is gone; 1 is our word for a broken plan.
        sys.exit(_PIPE if stop.code == 1 else stop.code)
    except OSError as error:
        _fail(f"the output cannot be written: {error.strerror or error}.", 2)


def _fail(sentence: str, code: int) -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.print("Error:", style="bold red", end=" ")
    console.print(sentence, markup=False, highlight=False)
    sys.exit(code)
