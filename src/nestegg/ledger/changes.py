"""Budgets and withdrawals: what must hold for them, how they are written, and who changed what, when and why."""

from __future__ import annotations

import getpass
import heapq
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, select, true

from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.ledger.accounts import peer_account
from nestegg.ledger.history import History
from nestegg.ledger.holders import AccountKey, Client, Peers, all_clients, checked_name, each_client, near
from nestegg.ledger.log import append, budget_row
from nestegg.ledger.rules import RULES, SAFE, Rule, new_rule
from nestegg.ledger.schema import budgets, clients, entries, groups, insert_rows, members, withdrawals
from nestegg.planning import Budget

Whose = int | Select[Any] | None  # one client by number, those that a query finds, or all

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


class Given(NamedTuple):
    """A client with the budget that it gets, and the rule of its account."""

    client: Client
    budget: Budget
    rule: Rule


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


def checked_budgets(
    given: Mapping[str, Budget], rule: str | None, reason: str | None, author: str | None
) -> dict[str, Budget]:
    """Return budgets by the names that a ledger keeps.

    Raises:
        InputError: something is wrong that can be told without the ledger, which need not be there yet.
    """
    if rule is not None:
        one_of("account", rule, RULES)
    reason_of(reason or FIRST)
    author_of(author)
    named = {checked_name(name): budget for name, budget in given.items()}
    if len(named) < len(given):
        raise InputError("given has the same client twice, in two spellings that Unicode holds for the same.")
    return named


def first_budgets(
    connection: Connection, named: Mapping[str, Budget], rule: str | None, *, new: bool, place: str
) -> list[Given]:
    """Budgets of clients that the ledger does not know, and knows from then on.

    Raises:
        InputError: the ledger knows others, and nobody said that these are new: a name may be a slip of the pen.
    """
    if named and not new and connection.execute(select(clients.c.client).limit(1)).first():
        stranger = next(iter(named))
        raise InputError(
            f"{place} knows no client {stranger!r}.{near(connection, stranger)} A new client must be announced: --new, "
            "or new=True."
        )
    joining = all_clients(connection, list(named)).values()
    return [Given(one, named[one.name], next_rule(one.name, None, named[one.name], rule)) for one in joining]


def other_budgets(
    connection: Connection,
    wanted: Sequence[tuple[Client, Budget]],
    rule: str | None,
    *,
    change_delta: bool,
    place: str,
) -> Iterator[Given]:
    """Budgets of clients that have another one.

    Raises:
        InputError: a client withdrew, has spent more than that, or would get another rule, or another δ unasked.
    """
    budget_of = {client.number: (client, budget) for client, budget in wanted}
    checked: set[tuple[AccountKey, Budget]] = set()
    history: History | None = None
    for number, key in each_client(connection):
        if number not in budget_of:
            continue
        client, budget = budget_of[number]
        kept = next_rule(client.name, key, budget, rule)
        if (key.budget, key.rule) == (budget, kept):
            continue
        if key.withdrawn is not None:
            raise InputError(f"client {client.name!r} has withdrawn; its budget stays as it is.")
        if key.groups and (key, budget) not in checked:
            checked.add((key, budget))
            history = history or History.of(connection, place)
            _check_spent(history, client.name, key, budget, change_delta)
        yield Given(client, budget, kept)


def next_rule(client: str, before: AccountKey | None, budget: Budget, asked: str | None) -> Rule:
    """The rule of an account that gets a budget. Once its client is in a run, it never changes.

    Raises:
        InputError: another rule was asked for.
    """
    if before is None or not before.groups:
        return new_rule(asked or (before.rule.name if before else SAFE), budget)
    if asked not in (None, before.rule.name):
        raise InputError(
            f"client {client!r}: account = {asked!r} cannot replace the rule {before.rule.name!r} of an account that "
            "is in use. Open a new account under another name."
        )
    return before.rule


def _check_spent(history: History, client: str, key: AccountKey, budget: Budget, change_delta: bool) -> None:
    """Nobody gets a budget below what is spent, or one by which less is spent, without a word."""
    account, before = peer_account(history, Peers(*key._replace(budget=budget), 1, client)), key.budget.delta
    if account.charges and budget.delta != before and not change_delta:
        raise InputError(
            f"client {client!r}: delta = {budget.delta:g} would replace {before:g}, by which it has spent "
            f"epsilon = {account.epsilon_at(before):.6g}, and not {account.epsilon:.6g}. If that is meant: "
            "--change-delta, or change_delta=True."
        )
    if account.is_over:
        raise InputError(
            f"client {client!r}: epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is below what it has spent, "
            f"{account.epsilon:.6g}."
        )


def write_budgets(connection: Connection, given: Iterable[Given], reason: str, author: str) -> None:
    """Clients' budgets, as one entry."""
    ordered = sorted(given, key=lambda one: one.client)
    if not ordered:
        return
    numbers = [(one.budget.epsilon, one.budget.delta, one.rule.name, one.rule.order) for one in ordered]
    rows = [budget_row(one.client.name, *row) for one, row in zip(ordered, numbers, strict=True)]
    entry = append(connection, "budgets", detail={"reason": reason, "author": author}, rows=rows).entry
    insert_rows(
        connection, budgets, ((one.client.number, entry, *row) for one, row in zip(ordered, numbers, strict=True))
    )


def write_withdrawal(connection: Connection, client: Client, reason: str, author: str) -> None:
    """A client's withdrawal, as one entry.

    Raises:
        InputError: it has withdrawn before.
    """
    number = client.number
    if connection.execute(select(withdrawals).where(withdrawals.c.client == number)).first():
        raise InputError(f"client {client.name!r} has withdrawn already.")
    taken = select(members.c.group).where(members.c.client == number).order_by(members.c.group)
    rows = [(client.name,), *map(tuple, connection.execute(taken))]
    entry = append(connection, "withdraw", detail={"reason": reason, "author": author}, rows=rows).entry
    insert_rows(connection, withdrawals, [(number, entry)])


def each_change(connection: Connection, client: int | None = None) -> Iterator[Change]:
    """All budgets and withdrawals, of one client or of all, in the order of the log."""
    return heapq.merge(_budgets(connection, client), _withdrawals(connection, client), key=lambda one: one.entry)


def latest_changes(connection: Connection, count: int) -> list[Change]:
    """The latest budgets that replaced another, and withdrawals, in the order of the log."""
    again = list(_budgets(connection, None, count))
    return sorted([*again, *_withdrawals(connection, None)], key=lambda one: one.entry)[-count:]


def changes_in(connection: Connection, run: int) -> Iterator[Change]:
    """The budgets that replaced another, and withdrawals, of a run's members, in the order of the log."""
    inside = select(members.c.client).join(groups).where(groups.c.run == run)
    again = (one for one in _budgets(connection, inside) if one.epsilon_before is not None)
    return heapq.merge(again, _withdrawals(connection, inside), key=lambda one: one.entry)


def _budgets(connection: Connection, whose: Whose, latest: int | None = None) -> Iterator[Change]:
    before = [
        func.lag(column).over(partition_by=budgets.c.client, order_by=budgets.c.entry).label(f"{column.name}_before")
        for column in (budgets.c.epsilon, budgets.c.delta)
    ]
    rows = select(budgets, *before).subquery()
    query = select(rows, clients.c.name, entries.c.at, entries.c.detail)
    query = query.join(clients, clients.c.client == rows.c.client).join(entries, entries.c.entry == rows.c.entry)
    query = query.where(_is(rows.c.client, whose))
    if latest is None:
        query = query.order_by(rows.c.entry, rows.c.client)
    else:
        query = query.where(rows.c.epsilon_before.is_not(None)).order_by(rows.c.entry.desc()).limit(latest)
    for _, entry, epsilon, delta, rule, order, old_epsilon, old_delta, name, at, detail in connection.execute(query):
        numbers = (epsilon, delta, rule or "fixed", order, old_epsilon, old_delta)
        yield Change(entry, at[:10], name, "budget", *numbers, *_why(detail))


def _withdrawals(connection: Connection, whose: Whose) -> Iterator[Change]:
    query = select(entries.c.entry, entries.c.at, clients.c.name, entries.c.detail).select_from(
        withdrawals.join(clients).join(entries)
    )
    query = query.where(_is(withdrawals.c.client, whose))
    for entry, at, name, detail in connection.execute(query.order_by(entries.c.entry)):
        yield Change(entry, at[:10], name, "withdrawal", *(None,) * 6, *_why(detail))


def _is(column: ColumnElement[int], whose: Whose) -> ColumnElement[bool]:
    """Whether a row is about these clients. One is compared by number: databases then look at no other's rows."""
    if whose is None:
        return true()
    return column == whose if isinstance(whose, int) else column.in_(whose)


def _why(detail: str) -> tuple[str, str]:
    content: dict[str, Any] = json.loads(detail)
    return content.get("reason", ""), content.get("author", "")
