"""What `nestegg ledger show` shows, as JSON and as tables, and what `nestegg ledger export` writes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from nestegg.cli import ledger_tables

if TYPE_CHECKING:
    from nestegg.ledger import Change, Ledger, RunState

Content = tuple[Callable[[], dict[str, Any]], list[Table]]  # JSON has ε by PLD of every account, which takes long
Lines = tuple[Sequence[str], Iterable[dict[str, Any]]]  # columns, and a row a line


def client_content(ledger: Ledger, client: str) -> Content:
    """A client's account, with every budget it has had."""
    account, changes = ledger.account(client), list(ledger.changes(client))
    earlier = sorted({change.delta for change in changes if change.delta} - {account.budget.delta})

    def content() -> dict[str, Any]:
        at = {f"{delta:g}": account.epsilon_at(delta) for delta in earlier}
        return {**account.to_dict(), "epsilon_spent_at": at, "changes": [change._asdict() for change in changes]}

    shown = ledger_tables.client_table(account, earlier if account.charges else ())
    return content, [shown, ledger_tables.changes_table(changes, _by_both(ledger, changes))]


def run_content(ledger: Ledger, run: str) -> Content:
    """A run's accounts, group by group."""
    books = ledger.books(run)
    groups, state = books.accounts(), books.state

    def content() -> dict[str, Any]:
        shown = {name: account.to_dict() for name, account in groups.items()}
        return {"run": run, "note": state.note, "groups": shown}

    return content, [ledger_tables.run_table(run, state, books.plan, groups)]


def overview_content(ledger: Ledger) -> Content:
    """All runs and accounts, and the latest changes."""
    history, accounts, changes = ledger.history(), ledger.accounts(), ledger.latest_changes()
    runs = list(history.runs.values())
    plans = {state.name: ledger.plan(state.plan) for state in runs}

    def content() -> dict[str, Any]:
        return {
            "runs": [_state(state) for state in runs],
            "accounts": [account.to_dict() for account in accounts],
            "changes": [change._asdict() for change in changes],
        }

    shown = [ledger_tables.runs_table(runs, plans), ledger_tables.accounts_table(accounts)]
    if changes:
        shown.append(ledger_tables.changes_table(changes, _by_both(ledger, changes)))
    return content, shown


def _state(run: RunState) -> dict[str, Any]:
    done, open_ = run.done, run.claim is not None
    return {
        "run": run.name,
        "began": run.at[:10],
        "plan": run.plan,
        "rounds_done": done,
        "open": open_,
        "note": run.note,
    }


def _by_both(ledger: Ledger, changes: Sequence[Change]) -> dict[int, str]:
    """What clients whose δ was changed have spent by the one and by the other."""
    spent = {}
    for change in changes:
        before, now = change.delta_before, change.delta
        if before is not None and now is not None and before != now:
            account = ledger.account(change.client)
            by = " and ".join(f"{account.epsilon_at(delta):.4g} at δ = {delta:g}" for delta in (before, now))
            spent[change.entry] = f" (it has spent ε = {by})"
    return spent


def charge_lines(ledger: Ledger) -> Lines:
    """A line a charge."""
    columns = ("entry", "day", "run", "round", "group", "sampling_rate", "noise_multiplier", "state", "note")
    return columns, ledger.charges()


def account_lines(ledger: Ledger) -> Lines:
    """A line a client."""
    numbers = ("epsilon", "delta", "account", "order", "epsilon_spent", "epsilon_left", "withdrawn", "runs", "note")
    return ("client", *numbers), ({"client": name, **account.numbers()} for name, account in ledger.clients())


def change_lines(ledger: Ledger) -> Lines:
    """A line a budget or withdrawal, with its reason."""
    from nestegg.ledger import Change  # databases are slow to import

    notes = {name: account.note for name, account in ledger.clients()}
    rows = ({**change._asdict(), "note": notes[change.client]} for change in ledger.changes())
    return (*Change._fields, "note"), rows


def joined_lines(ledger: Ledger) -> Lines:
    """A line a client and run: what the run has cost the client, by both accountants."""
    from nestegg.ledger import Membership  # databases are slow to import

    return Membership._fields, (one._asdict() for one in ledger.memberships())


def csv_text(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines as CSV, one by one: there may be millions."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for row in rows:
        writer.writerow(row)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def json_text(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines as JSON lines, one by one."""
    return (json.dumps(row, allow_nan=False) + "\n" for row in rows)
