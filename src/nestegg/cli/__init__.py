"""The command line: one thin file per command. A user's mistake is one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from io import TextIOWrapper

import typer
from rich.console import Console

from nestegg.cli import data, flower, ledger
from nestegg.cli.bench import bench
from nestegg.cli.compare import compare
from nestegg.cli.plan import plan
from nestegg.cli.reproduce import reproduce
from nestegg.cli.run import run
from nestegg.cli.verify import verify
from nestegg.errors import InputError, StoppedError, VerificationError

_PIPE = 141  # as shells report SIGPIPE

app = typer.Typer(
    name="nestegg",
    help="Federated learning in which every client has its own privacy budget and decides when to spend it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (plan, verify, run, compare, reproduce, bench):
    app.command()(command)
app.add_typer(data.app)
app.add_typer(ledger.app)
app.add_typer(flower.app)


@app.callback()
def _root() -> None:
    """Keep `nestegg` a program of commands, even while it has few."""


def main() -> None:
    """Run the program.

    Exit codes: 0 all is well; 1 a plan or a ledger does not hold; 2 the user must change something; 3 a run stopped
    and can go on.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters gets question marks, not a crash
    try:
        app()
        sys.stdout.flush()
    except InputError as error:
        _fail(str(error), 2)
    except VerificationError as error:
        _fail(str(error), 1)
    except StoppedError as error:
        _fail(str(error), 3)
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
