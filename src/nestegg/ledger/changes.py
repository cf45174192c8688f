"""Changes: who gave a client which budget, why, when it withdrew, and what must hold for another budget."""

from __future__ import annotations

import getpass
import heapq
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from nestegg.errors import InputError
from nestegg.ledger.peers import Standing
from nestegg.ledger.rules import SAFE, Rule, new_rule
from nestegg.ledger.tables import budgets, clients, entries, withdrawals
from nestegg.planning import Budget

FIRST = "first budget"  # the reason of a budget for which none is needed


class Change(NamedTuple):
    """A client's budget, or its withdrawal, as the log has it.

    Attributes:
        entry: number of the entry.
        day: on which it was written.
        client: whose.
        kind: budget, or withdrawal, which has no numbers.
        epsilon: of the budget.
        delta: of the budget.
        account: the account's rule.
        order: of the rule renyi.
        epsilon_before: of the budget before; None where there was none.
        delta_before: of the budget before.
        reason: as given; empty in entries of version 1.
        author: as given, or the login name.
    """

    entry: int
    day: str
    client: str
    kind: str
    epsilon: float | None
    delta: float | None
    account: str | None
    order: float | None
    epsilon_before: float | None
    delta_before: float | None
    reason: str
    author: str


def author_of(given: str | None) -> str:
    """Who changes something: as given, as $NESTEGG_AUTHOR says, or the login name."""
    try:
        return _words("author", given or os.environ.get("NESTEGG_AUTHOR") or getpass.getuser())
    except (OSError, KeyError):  # a process without a user
        return "unknown"


def reason_of(given: str | None) -> str:
    """A reason, in words."""
    return _words("reason", given or "")


def _words(field: str, text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise InputError(f"{field} = {text!r} must be words on one line.")
    return text.strip()


def next_rule(client: str, before: Standing | None, budget: Budget, asked: str | None) -> Rule:
    """The rule of an account that gets a budget. Once its client is in a run, it never changes.

    Raises:
        InputError: another rule was asked for.
    """
    if before is None or not before.groups:
        return new_rule(asked or (before.rule if before else SAFE), budget)
    if asked not in (None, before.rule):
        raise InputError(
            f"client {client!r}: account = {asked!r} cannot replace the rule {before.rule!r} of an account that is in "
            "use. Open a new account under another name."
        )
    return Rule(before.rule, before.order)


def each_change(connection: Connection, client: int | None = None) -> Iterator[Change]:
    """All budgets and withdrawals, of one client or of all, in the order of the log."""
    return heapq.merge(_budgets(connection, client), _withdrawals(connection, client), key=lambda one: one.entry)


def latest_changes(connection: Connection, count: int) -> list[Change]:
    """The latest budgets that replaced another, and withdrawals, in the order of the log."""
    again = list(_budgets(connection, None, count))
    return sorted([*again, *_withdrawals(connection, None)], key=lambda one: one.entry)[-count:]


def _budgets(connection: Connection, client: int | None, latest: int | None = None) -> Iterator[Change]:
    before = [
        func.lag(column).over(partition_by=budgets.c.client, order_by=budgets.c.entry).label(f"{column.name}_before")
        for column in (budgets.c.epsilon, budgets.c.delta)
    ]
    rows = select(budgets, *before).subquery()
    query = select(rows, clients.c.name, entries.c.at, entries.c.detail)
    query = query.join(clients, clients.c.client == rows.c.client).join(entries, entries.c.entry == rows.c.entry)
    if client is not None:
        query = query.where(rows.c.client == client)
    if latest is None:
        query = query.order_by(rows.c.entry, rows.c.client)
    else:
        query = query.where(rows.c.epsilon_before.is_not(None)).order_by(rows.c.entry.desc()).limit(latest)
    for _, entry, epsilon, delta, rule, order, old_epsilon, old_delta, name, at, detail in connection.execute(query):
        numbers = (epsilon, delta, rule or "fixed", order, old_epsilon, old_delta)
        yield Change(entry, at[:10], name, "budget", *numbers, *_why(detail))


def _withdrawals(connection: Connection, client: int | None) -> Iterator[Change]:
    query = select(entries.c.entry, entries.c.at, clients.c.name, entries.c.detail).select_from(
        withdrawals.join(clients).join(entries)
    )
    if client is not None:
        query = query.where(withdrawals.c.client == client)
    for entry, at, name, detail in connection.execute(query.order_by(entries.c.entry)):
        yield Change(entry, at[:10], name, "withdrawal", *(None,) * 6, *_why(detail))


def _why(detail: str) -> tuple[str, str]:
    content: dict[str, Any] = json.loads(detail)
    return content.get("reason", ""), content.get("author", "")
