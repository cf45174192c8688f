"""`nestegg statement`: a run's privacy statement, to be read, signed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.cli.ledger import ledger_at
from nestegg.cli.progress import hearing
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs


def statement(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="The folder of a run.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of all files; by default that of the run.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="The page, if not statement.html there.")] = None,
    pdf: Annotated[Path | None, typer.Option(metavar="FILE", help="The PDF, if not statement.pdf there.")] = None,
    sign: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Sign statement.json by an SSH key, into statement.json.sig.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="STATEMENT", help="Check a signed statement.json, and RUN against it.")
    ] = None,
    signers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Allowed signers, as ssh-keygen -Y verify wants them.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The run's ledger, if it is not where the run says: URL, file or folder."),
    ] = None,
) -> None:
    """Write who is promised what by a run, on a page that can be signed; or check one. Exit code 1 if it fails."""
    needs("nestegg statement", *RUNS)
    where = None if ledger is None else ledger_at(ledger)
    if check is not None:
        if signers is None or any(one is not None for one in (out, html, pdf, sign)):
            raise InputError("--check STATEMENT needs --signers FILE, and takes RUN and --ledger besides.")
        _check(check, signers, run, where)
        return
    if run is None or signers is not None:
        raise InputError("give the folder of a run, or --check STATEMENT with --signers FILE.")
    from nestegg.runs.statement import make_statement  # torch is slow to import; other commands do without it
    from nestegg.runs.statement_files import write_statement

    console = Console(stderr=True, soft_wrap=True)
    with console.status("Judging the plan and reading the ledger …"), hearing(_warn):
        made = make_statement(run, ledger=where)
    written = write_statement(made, out or run, html=html, pdf=pdf, key=sign)
    for warning in made.warnings:
        _warn(warning)
    if made.run["note"]:
        _warn(f"{made.run['note'].capitalize()}.")
    if not any(path.suffix == ".pdf" for path in written):
        _warn("No PDF was written: it needs the extra 'studio': pip install 'nestegg-fl[studio]'.")
    _say(f"Written: {', '.join(map(str, written))}.")


def _check(file: Path, signers: Path, run: Path | None, ledger: str | Path | None) -> None:
    if file.is_dir():
        raise InputError(f"--check = {str(file)!r} is a folder; give the statement.json in it.")
    from nestegg.configuration.description import CONFIG, RUN
    from nestegg.configuration.terms_file import TERMS
    from nestegg.runs.signing import check_statement

    lies_in_run = any((file.parent / name).is_file() for name in (CONFIG, RUN, TERMS))
    folder = file.parent if run is None and lies_in_run else run
    with Console(stderr=True).status("Checking …"), hearing(_warn):
        found = check_statement(file, signers, folder=folder, ledger=ledger)
    for remark in found.remarks:
        _say(remark)
    holds = f", and the run in {folder} is what was signed" if folder is not None else ""
    _say(f"{file} is signed by {found.signer}{holds}.")


def _warn(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True).print(sentence, markup=False, highlight=False)


def _say(sentence: str) -> None:
    Console().print(sentence, highlight=False, markup=False, soft_wrap=True)
