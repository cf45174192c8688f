"""`nestegg ledger`: who has spent what, over all runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from nestegg.cli.progress import hearing
from nestegg.errors import InputError
from nestegg.extras import RUNS, needs
from nestegg.files import write_atomically

if TYPE_CHECKING:
    from nestegg.configuration.description import Description
    from nestegg.ledger import Ledger
    from nestegg.planning import Budget

app = typer.Typer(name="ledger", help="What every client has spent, over all runs.", no_args_is_help=True)
budgets = typer.Typer(name="budgets", help="Lifetime budgets of clients.", no_args_is_help=True)
app.add_typer(budgets)

Place = Annotated[
    str,
    typer.Option(
        "--ledger", envvar="NESTEGG_LEDGER", metavar="URL", help="A URL, a file, or the folder of a run or account."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
DEFAULT = "ledger.db"
Rule = Annotated[
    str | None,
    typer.Option(
        "--account",
        metavar="fixed|renyi|gaussian",
        help="How new accounts are kept. renyi, the default: plans may depend on earlier results, at a price; "
        "gaussian: the same at none, for clients sampled with rate 1 (lower rates pay as if it were 1); "
        "fixed: plans depend on no result.",
    ),
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; required where a budget replaces another.")]
Author = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who says so; else $NESTEGG_AUTHOR or the login name.")
]
New = Annotated[bool, typer.Option("--new", help="Let clients in that the ledger does not know.")]
ChangeDelta = Annotated[bool, typer.Option("--change-delta", help="Change δ of clients that have spent something.")]


@app.command()
def show(
    client: Annotated[str | None, typer.Option(metavar="ID", help="The account of one client.")] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The accounts of one run, group by group; its folder's name is enough."),
    ] = None,
    as_json: AsJson = False,
    place: Place = DEFAULT,
) -> None:
    """Show runs and accounts: budgets, what is spent, what is left, and who changed a budget and why."""
    if client is not None and run is not None:
        raise InputError("give either --client or --run.")
    from nestegg.cli.ledger_content import client_content, overview_content, run_content

    with _open(place, read_only=True) as ledger:
        if client is not None:
            content, shown = client_content(ledger, client)
        elif run is not None:
            described = _run_in(Path(run))
            known = described is not None and ledger.has_run(described.run)
            content, shown = run_content(ledger, described.run if described and known else ledger.find_run(run))
        else:
            content, shown = overview_content(ledger)
    if as_json:
        print(json.dumps(content(), allow_nan=False))
        return
    for table in shown:
        Console().print(table)


@budgets.command("set")
def set_budget(
    client: Annotated[str, typer.Argument(metavar="ID", help="The client.")],
    epsilon: Annotated[float, typer.Option(help="ε it may spend in its life.")],
    delta: Annotated[float, typer.Option(help="δ at which ε is meant.")] = 1e-5,
    account: Rule = None,
    reason: Reason = None,
    author: Author = None,
    new: New = False,
    change_delta: ChangeDelta = False,
    place: Place = DEFAULT,
) -> None:
    """Give a client a lifetime budget, or another one."""
    from nestegg.planning import Budget

    given = {client: Budget(epsilon, delta)}
    with _open_for(given, account, reason, author, place) as ledger:
        ledger.set_budgets(given, rule=account, reason=reason, author=author, new=new, change_delta=change_delta)
        rule = ledger.account(client).rule
    _say(f"{client} may spend ε = {epsilon:g} at δ = {delta:g}; {rule.sentence}.")


@budgets.command("import")
def import_budgets(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Lines of client,epsilon[,delta]; or JSON lines.")],
    delta: Annotated[float, typer.Option(help="δ of clients whose line gives none.")] = 1e-5,
    account: Rule = None,
    reason: Reason = None,
    author: Author = None,
    new: New = False,
    change_delta: ChangeDelta = False,
    place: Place = DEFAULT,
) -> None:
    """Give many clients their lifetime budgets: all of them, or, if a line is wrong, none."""
    from nestegg.planning.clients import read_budgets

    given = read_budgets(file, delta)
    with _open_for(given, account, reason, author, place) as ledger:
        ledger.set_budgets(given, rule=account, reason=reason, author=author, new=new, change_delta=change_delta)
        accounts = ledger.accounts()
    kept = dict.fromkeys(one.rule.name for one in accounts)
    is_open = account is None and any(one.rule.name == "renyi" and not one.parts for one in accounts)  # to another rule
    hint = " Where everybody is in every round, --account gaussian would charge less." if is_open else ""
    count = "A client has its budget" if len(given) == 1 else f"{len(given)} clients have their budgets"
    _say(f"{count}. Accounts are kept by the rule {' or '.join(kept)}.{hint}")


@app.command()
def withdraw(
    client: Annotated[str, typer.Argument(metavar="ID", help="The client.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.")],
    author: Author = None,
    place: Place = DEFAULT,
) -> None:
    """Let a client withdraw, for good: it is in no new run, and its open ones go on without it."""
    with _open(place) as ledger:
        ledger.withdraw(client, reason, author=author)
        open_ = [part.run for part in ledger.account(client).parts]
    _say(f"{client} has withdrawn: it pays for no further round. Runs it is in: {', '.join(open_) or 'none'}.")


@app.command()
def verify(
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head that was noted down earlier and must still be there.")
    ] = None,
    place: Place = DEFAULT,
) -> None:
    """Walk the whole chain and recompute every account; prints the head, which is worth noting down elsewhere."""
    if head is not None and not re.fullmatch("[0-9a-f]{64}", head):
        raise InputError(f"head = {head!r} must be all of its 64 digits and small letters.")
    with Console(stderr=True).status("Reading the log …"), _open(place, read_only=True) as ledger:
        position, accounts = ledger.verify(head)
        runs = ledger.history().runs.values()
    clients = sum(account.clients for account in accounts)
    gone = sum(account.clients for account in accounts if account.withdrawn)
    for run in runs:
        if run.note:
            _say(f"Run {run.name}: {run.note}.")
    withdrawn = f" ({gone} withdrawn)" if gone else ""
    count = f"{position.entry} {'entry' if position.entry == 1 else 'entries'}"
    _say(f"The ledger holds: {count}, {clients} clients{withdrawn}, nobody is over budget. Head {position.hash}")
    if head is not None:
        _say(f"The head that you gave is part of its log: {head}")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv file, or a .jsonl file.")],
    accounts: Annotated[bool, typer.Option("--accounts", help="A line a client instead of a line a charge.")] = False,
    changes: Annotated[bool, typer.Option("--budgets", help="A line a budget or withdrawal, with its reason.")] = False,
    joined: Annotated[
        bool, typer.Option("--joined", help="A line a client and run, with ε by two accountants.")
    ] = False,
    place: Place = DEFAULT,
) -> None:
    """Write all charges, accounts, budgets, or what each run has cost each client, as CSV or JSON lines. Days only."""
    if file.suffix not in (".csv", ".jsonl"):
        raise InputError(f"{file} must end in .csv or .jsonl.")
    if accounts + changes + joined > 1:
        raise InputError("give either --accounts, --budgets or --joined.")
    from nestegg.cli import ledger_content as content

    with _open(place, read_only=True) as ledger:
        chosen = {content.account_lines: accounts, content.change_lines: changes, content.joined_lines: joined}
        lines = next((one for one, wanted in chosen.items() if wanted), content.charge_lines)
        columns, rows = lines(ledger)
        text = content.csv_text(columns, rows) if file.suffix == ".csv" else content.json_text(rows)
        write_atomically(file, text)
    _say(f"Written to {file}.")


@app.command()
def migrate(place: Place = DEFAULT) -> None:
    """Bring the tables of an older nestegg up to date, after a backup; whatever writes does so, too."""
    _open(place).close()
    _say("The ledger is up to date.")


@app.command()
def replan(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name in the ledger, or its folder.")],
    place: Place = DEFAULT,
) -> None:
    """Plan the rounds that are left of a run anew, from what its clients have really spent, here and elsewhere."""
    from nestegg.cli import tables
    from nestegg.planning import judged

    folder = Path(run)
    if (described := _run_in(folder)) is not None:
        needs("planning a run anew", *RUNS)
        from nestegg.runs import replan_run

        with hearing(_warn):
            plan = replan_run(folder)
    else:
        with _open(place) as ledger:
            books = ledger.books(run)
            plan = books.replan()
            for sentence in books.conditions():
                _warn(sentence)
    console = Console()
    console.print(tables.groups_table(plan))
    console.print(tables.spending_table(judged(plan)))
    go_on = f" Go on: {described.go_on.format(folder=run)}" if described is not None else ""
    _say(f"{run} has a new plan, {plan.digest[:16]}, from what is left.{go_on}")


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE.db", help="A new SQLite file.")],
    place: Place = DEFAULT,
) -> None:
    """Copy the ledger as it is now into a file that is a ledger itself; runs go on meanwhile."""
    with _open(place, read_only=True) as ledger:
        ledger.backup(file)
    _say(f"Written to {file}.")


def _open(place: str, read_only: bool = False) -> Ledger:
    """A ledger that is there."""
    needs("the ledger", "ledger")
    from nestegg.ledger import Ledger  # databases are slow to import; other commands do without them
    from nestegg.ledger.database import file_of

    where = ledger_at(place)
    if (file := file_of(where)) is not None and not file.exists():
        raise InputError(f"{file} does not exist; a ledger is given by its file or URL (--ledger).")
    return Ledger(where, read_only=read_only)


def _open_for(
    given: Mapping[str, Budget], account: str | None, reason: str | None, author: str | None, place: str
) -> Ledger:
    """A ledger that gets budgets, and is made for them once nothing is wrong with them."""
    needs("the ledger", "ledger")
    from nestegg.ledger import Ledger
    from nestegg.ledger.changes import checked_budgets

    checked_budgets(given, account, reason, author)
    return Ledger(ledger_at(place))


def ledger_at(place: str) -> str | Path:
    """The ledger that somebody means who names a URL, a file, or the folder of a run."""
    if "://" in place:
        return place
    from nestegg.configuration.config import own_ledger

    folder = Path(place)
    if (run := _run_in(folder)) is not None:
        return run.ledger_in(folder)
    if not folder.is_dir():
        return folder
    if not (own := own_ledger(folder)).is_file():  # as a run on Flower has, and a client's account
        raise InputError(f"--ledger = {place!r} is a folder without a ledger; a ledger is given by its file or URL.")
    return own


def _run_in(folder: Path) -> Description | None:
    """The run in a folder, if there is one."""
    from nestegg.configuration.description import CONFIG, RUN, read_description

    try:
        is_run = (folder / CONFIG).is_file() or (folder / RUN).is_file()
    except (OSError, ValueError) as error:
        raise InputError(f"{str(folder)[:60]!r} is not a file name: {error}.") from None
    return read_description(folder) if is_run else None


def _warn(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True).print(sentence, markup=False)


def _say(sentence: str) -> None:
    Console().print(sentence, highlight=False, markup=False, soft_wrap=True)
