"""Runs, accounts and changes of a ledger as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from nestegg.cli.tables import SHOWN, number, plain_table, say_rest
from nestegg.planning import Plan

if TYPE_CHECKING:
    from nestegg.ledger import Account, Change, RunState


def runs_table(runs: Iterable[RunState], plans: dict[str, Plan]) -> Table:
    """A line a run: when it began, how far it has come, and what is to be known of its results."""
    table = plain_table("Runs", "method", "clients", "rounds done", "began", first="run")
    notes = []
    for run in runs:
        plan = plans[run.name]
        open_ = ", one reserved" if run.claim else ""
        done = f"{run.done} of {plan.rounds}{open_}"
        table.add_row(escape(run.name), plan.method, str(plan.clients), done, run.at[:10])
        if run.note:
            notes.append(f"{escape(run.name)}: {escape(run.note)}")
    if notes:
        table.caption, table.caption_justify = "\n".join(notes), "left"
    return table


def accounts_table(accounts: Sequence[Account]) -> Table:
    """A line for all clients that have the same budget and rule and took part in the same groups."""
    headings = ("clients", "budget ε", "account", "ε spent", "ε left", "runs")
    table = plain_table("Accounts over all runs, a line for all clients that are alike", *headings, first="for example")
    for account in accounts[:SHOWN]:
        table.add_row(
            escape(account.example),
            str(account.clients),
            f"{account.budget.epsilon:g}",
            f"{account.rule.name}{', withdrawn' if account.withdrawn else ''}",
            number(account.epsilon),
            number(account.left),
            str(len(account.parts)),
        )
    return say_rest(table, len(accounts), "accounts")


def client_table(account: Account, earlier: Iterable[float] = ()) -> Table:
    """A client's account, run by run, and at every δ it has had. ε of several runs do not add up: they are less."""
    gone = ", withdrawn" if account.withdrawn else ""
    title = f"{escape(account.example)}: budget ε = {account.budget.epsilon:g} at δ = {account.budget.delta:g}{gone}"
    table = plain_table(title, "group", "rounds paid", "ε by itself", first="run")
    for part in account.parts:
        table.add_row(escape(part.run), escape(part.group), str(part.rounds), number(account.within(part.run)))
    table.add_section()
    rounds, by = str(sum(part.rounds for part in account.parts)), account.rule.label
    table.add_row(f"all together, by {by}", "", rounds, number(account.epsilon))
    for delta in earlier:
        table.add_row(f"at the earlier δ = {delta:g}", "", "", number(account.epsilon_at(delta)))
    pld = "by PLD, had all plans been made in advance" if account.rule.is_adaptive else "by PLD"
    table.add_row(f"all together, {pld}", "", "", number(account.epsilon_pld))
    table.add_row(f"left, by {by}", "", "", number(account.left))
    promise = account.rule.sentence
    notes = [f"{part.run}: {part.note}" for part in account.parts if part.note]
    lines = [f"{promise[0].upper()}{promise[1:]}.", *map(escape, notes)]
    table.caption, table.caption_justify = "\n".join(lines), "left"
    return table


def changes_table(changes: Sequence[Change], spent: dict[int, str]) -> Table:
    """A line a budget or withdrawal, with its reason; `spent` is what a client had spent by both δ, by entry."""
    table = plain_table("Budgets and withdrawals", "day", "budget ε", "δ", "by", first="client")
    table.add_column("reason", overflow="fold")
    for change in changes:
        reason = f"{change.reason}{spent.get(change.entry, '')}"
        budget = _arrow(change.epsilon_before, change.epsilon) if change.kind == "budget" else change.kind
        delta = _arrow(change.delta_before, change.delta)
        table.add_row(escape(change.client), change.day, budget, delta, escape(change.author), escape(reason))
    return table


def run_table(name: str, state: RunState, plan: Plan, groups: dict[str, Account]) -> Table:
    """A run's groups, each by the account of its member that has the least left."""
    title = f"{escape(name)}: {state.done} of {plan.rounds} rounds released"
    headings = ("clients", "budget ε", "ε in other runs", "ε here", "ε together", "ε left")
    table = plain_table(title, *headings)
    for row in plan.groups[:SHOWN]:
        account = groups[row.group.name]
        spent = (account.without(name), account.within(name), account.epsilon, account.left)
        clients, budget = str(row.group.clients), f"{account.budget.epsilon:g}"
        table.add_row(escape(row.group.name), clients, budget, *map(number, spent))
    if state.note:
        table.title = f"{title}\n{escape(state.note)}"
    return say_rest(table, len(plan.groups))


def _arrow(before: float | None, now: float | None) -> str:
    if now is None:
        return "–"
    return f"{now:g}" if before in (None, now) else f"{before:g} → {now:g}"
