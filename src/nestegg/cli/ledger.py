"""`nestegg ledger`: who has spent what, over all runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nestegg.cli import tables
from nestegg.config import Config, ledger_of, load_config
from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.ledger import Account, Ledger
from nestegg.planning import Budget, judged
from nestegg.planning.clients import read_budgets

app = typer.Typer(name="ledger", help="What every client has spent, over all runs.", no_args_is_help=True)
budgets = typer.Typer(name="budgets", help="Lifetime budgets of clients.", no_args_is_help=True)
app.add_typer(budgets)

Place = Annotated[
    str,
    typer.Option("--ledger", envvar="NESTEGG_LEDGER", metavar="URL", help="A URL, a file, or the folder of a run."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
DEFAULT = "ledger.db"
CHARGE_COLUMNS = ("entry", "at", "run", "round", "group", "sampling_rate", "noise_multiplier", "state")
ACCOUNT_COLUMNS = ("client", "epsilon", "delta", "epsilon_spent", "epsilon_left", "runs")


@app.command()
def show(
    client: Annotated[str | None, typer.Option(metavar="ID", help="The account of one client.")] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="The accounts of one run, group by group.")] = None,
    as_json: AsJson = False,
    place: Place = DEFAULT,
) -> None:
    """Show runs and accounts: budgets, what is spent, and what is left."""
    if client is not None and run is not None:
        raise InputError("give either --client or --run.")
    console = Console()
    with Ledger(_where(place), read_only=True) as ledger:
        if client is not None:
            account = ledger.account(client)
            content = _account(account)
            shown = [tables.client_table(account)]
        elif run is not None:
            books = ledger.books(run)
            groups = books.accounts()
            content = {"run": run, "groups": {name: _account(account) for name, account in groups.items()}}
            shown = [tables.run_table(run, books.state, books.plan, groups)]
        else:
            history, accounts = ledger.history(), ledger.accounts()
            plans = {state.name: ledger.plan(state.plan) for state in history.runs.values()}
            content = {
                "runs": [
                    {"run": s.name, "began": s.at, "plan": s.plan, "rounds_done": s.done, "open": s.claim is not None}
                    for s in history.runs.values()
                ],
                "accounts": [_account(account) for account in accounts],
            }
            shown = [tables.runs_table(history.runs.values(), plans), tables.accounts_table(accounts)]
    if as_json:
        print(json.dumps(content, allow_nan=False))
        return
    for table in shown:
        console.print(table)


@budgets.command("set")
def set_budget(
    client: Annotated[str, typer.Argument(metavar="ID", help="The client.")],
    epsilon: Annotated[float, typer.Option(help="ε it may spend in its life.")],
    delta: Annotated[float, typer.Option(help="δ at which ε is meant.")] = 1e-5,
    place: Place = DEFAULT,
) -> None:
    """Give a client a lifetime budget, or another one."""
    budget = Budget(epsilon, delta)
    with Ledger(_where(place)) as ledger:
        ledger.set_budgets({client: budget})
    _say(f"{client} may spend ε = {epsilon:g} at δ = {delta:g}.")


@budgets.command("import")
def import_budgets(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Lines of client,epsilon[,delta]; or JSON lines.")],
    delta: Annotated[float, typer.Option(help="δ of clients whose line gives none.")] = 1e-5,
    place: Place = DEFAULT,
) -> None:
    """Give many clients their lifetime budgets: all of them, or, if a line is wrong, none."""
    given = read_budgets(file, delta)
    with Ledger(_where(place)) as ledger:
        ledger.set_budgets(given)
    _say(f"{len(given)} clients have their budgets.")


@app.command()
def verify(
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head that was noted down earlier and must still be there.")
    ] = None,
    place: Place = DEFAULT,
) -> None:
    """Walk the whole chain and recompute every account; prints the head, which is worth noting down elsewhere."""
    with Console(stderr=True).status("Reading the log …"), Ledger(_where(place), read_only=True) as ledger:
        position, accounts = ledger.verify(head)
    clients = sum(account.clients for account in accounts)
    _say(f"The ledger holds: {position.entry} entries, {clients} clients, nobody is over budget. Head {position.hash}")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv file, or a .jsonl file.")],
    accounts: Annotated[bool, typer.Option("--accounts", help="A line a client instead of a line a charge.")] = False,
    place: Place = DEFAULT,
) -> None:
    """Write all charges, or all accounts, as CSV or JSON lines."""
    if file.suffix not in (".csv", ".jsonl"):
        raise InputError(f"{file} must end in .csv or .jsonl.")
    with Ledger(_where(place), read_only=True) as ledger:
        if accounts:
            rows: Iterable[dict[str, Any]] = ({"client": name, **_numbers(one)} for name, one in ledger.clients())
        else:
            rows = ledger.charges()
        columns = ACCOUNT_COLUMNS if accounts else CHARGE_COLUMNS
        write_atomically(file, _csv(columns, rows) if file.suffix == ".csv" else _lines(rows))
    _say(f"Written to {file}.")


@app.command()
def replan(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name in the ledger, or its folder.")],
    place: Place = DEFAULT,
) -> None:
    """Plan the rounds that are left of a run anew, from what its clients have really spent, here and elsewhere."""
    folder = Path(run)
    if is_folder := _run_config(folder) is not None:
        from nestegg.runs import replan_run

        plan = replan_run(folder, lambda sentence: Console(stderr=True, soft_wrap=True).print(sentence, markup=False))
    else:
        with Ledger(_where(place)) as ledger:
            plan = ledger.books(run).replan()
    console = Console()
    console.print(tables.groups_table(plan))
    console.print(tables.spending_table(judged(plan)))
    go_on = f" Go on: nestegg run --resume {run}" if is_folder else ""
    _say(f"{run} has a new plan, {plan.digest[:16]}, from what is left.{go_on}")


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE.db", help="A new SQLite file.")],
    place: Place = DEFAULT,
) -> None:
    """Copy the ledger as it is now into a file that is a ledger itself; runs go on meanwhile."""
    with Ledger(_where(place), read_only=True) as ledger:
        ledger.backup(file)
    _say(f"Written to {file}.")


def _where(place: str) -> str | Path:
    """The ledger that somebody means who names a URL, a file, or the folder of a run."""
    if "://" in place:
        return place
    config = _run_config(Path(place))
    return ledger_of(config, Path(place)) if config else Path(place)


def _run_config(folder: Path) -> Config | None:
    try:
        is_run = (folder / "config.toml").is_file()
    except (OSError, ValueError) as error:
        raise InputError(f"{str(folder)[:60]!r} is not a file name: {error}.") from None
    return load_config(folder / "config.toml") if is_run else None


def _numbers(account: Account) -> dict[str, Any]:
    return {
        "epsilon": account.budget.epsilon,
        "delta": account.budget.delta,
        "epsilon_spent": account.epsilon,
        "epsilon_left": account.left,
        "runs": len(account.parts),
    }


def _account(account: Account) -> dict[str, Any]:
    parts = [{"run": part.run, "group": part.group, "rounds": part.rounds} for part in account.parts]
    return {
        "example": account.example,
        "clients": account.clients,
        **_numbers(account),
        "epsilon_spent_pld": account.epsilon_pld,
        "runs": parts,
    }


def _csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _say(sentence: str) -> None:
    Console().print(sentence, highlight=False, markup=False, soft_wrap=True)
