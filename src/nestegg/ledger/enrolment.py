"""Enrolment: clients, their budgets and their places in runs, as rows."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from nestegg.checks import suggestion
from nestegg.errors import InputError
from nestegg.ledger.database import CHUNK, insert_rows
from nestegg.ledger.log import append, budget_row, membership_rows
from nestegg.ledger.rules import SAFE, Rule, new_rule, rule_for_plan
from nestegg.ledger.tables import budgets, clients, entries, groups, members, runs, spellings, withdrawals
from nestegg.planning import Budget, GroupPlan, Plan, check_plan


class Client(NamedTuple):
    """A client, by its number and by its name as the ledger has it."""

    number: int
    name: str


class Given(NamedTuple):
    """A client with the budget that it gets, and the rule of its account."""

    client: Client
    budget: Budget
    rule: Rule


def check_run(name: str, plan: Plan, members_: Sequence[str]) -> None:
    """What must hold for a run to begin, whatever the ledger says."""
    if not name.strip():
        raise InputError(f"name = {name!r} must be a word: every run has a name.")
    check_plan(plan)
    if any(0.0 in row.noise_multiplier for row in plan.groups):
        raise InputError(f"privacy.method = {plan.method!r} adds no noise: there is no budget it could be charged to.")
    if len(members_) != plan.clients or len(set(members_)) != plan.clients:
        raise InputError(f"members has {len(set(members_))} different clients; the plan is for {plan.clients}.")


def checked_name(name: str) -> str:
    """A client's name, which is the same however it is written down: in Unicode's form NFC."""
    if not name or name != name.strip() or not name.isprintable():
        raise InputError(f"client = {name!r} must be a name without spaces around it or unprintable characters.")
    return unicodedata.normalize("NFC", name)


def known_clients(connection: Connection, names: Sequence[str]) -> dict[str, Client]:
    """The clients among these that are known, by names in the form NFC; version 1 may have written them otherwise."""
    found: dict[str, Client] = {}
    for start in range(0, len(names), CHUNK):
        wanted = names[start : start + CHUNK]
        as_written = select(clients.c.name.label("form"), clients).where(clients.c.name.in_(wanted))
        otherwise = select(spellings.c.name.label("form"), clients).join(clients).where(spellings.c.name.in_(wanted))
        for query in (as_written, otherwise):
            found |= {form: Client(*row) for form, *row in connection.execute(query)}
    return found


def find_client(connection: Connection, name: str, place: str) -> Client:
    """The client of a name.

    Raises:
        InputError: it is not known; the sentence offers a name that is near.
    """
    wanted = checked_name(name)
    known = known_clients(connection, [wanted])
    if wanted not in known:
        raise InputError(f"{place} knows no client {name!r}.{near(connection, name)}")
    return known[wanted]


def near(connection: Connection, name: str) -> str:
    """A sentence that offers a known name, or nothing. It looks at the first few thousand."""
    return suggestion(name, connection.execute(select(clients.c.name).limit(CHUNK)).scalars())


def all_clients(connection: Connection, names: Sequence[str]) -> dict[str, Client]:
    """The clients of these names; those not known become so."""
    known = known_clients(connection, names)
    last = connection.execute(select(func.max(clients.c.client))).scalar() or 0
    fresh = [Client(last + i, name) for i, name in enumerate((n for n in names if n not in known), 1)]
    insert_rows(connection, clients, fresh)
    return known | {client.name: client for client in fresh}


def rows_of(plan: Plan) -> list[GroupPlan]:
    """The group of every member, in their order."""
    return [row for row in plan.groups for _ in range(row.group.clients)]


def brought(
    connection: Connection, plan: Plan, joining: Sequence[Client], unknown: Sequence[Budget] | None, rule: str | None
) -> list[Given]:
    """Members without a lifetime budget, with the one they bring, and the rule of the account that the run opens."""
    known = set(connection.execute(select(budgets.c.client).distinct()).scalars())
    missing = [i for i, client in enumerate(joining) if client.number not in known]
    if not missing:
        return []
    if unknown is None:
        raise InputError(f"client {joining[missing[0]].name!r} has no lifetime budget in the ledger.")
    rows, rules, given = rows_of(plan), dict[tuple[str, Budget], Rule](), []
    for i in missing:
        key, budget = (rows[i].group.name, unknown[i]), unknown[i]
        if key not in rules:
            rules[key] = rule_for_plan(rows[i], budget) if rule is None else new_rule(rule, budget)
        given.append(Given(joining[i], budget, rules[key]))
    return given


def check_members(connection: Connection, plan: Plan, joining: Sequence[Client]) -> None:
    """Refuse members that have withdrawn, and a plan that a member's account cannot be kept by.

    Those without an account count as those with one that outlives a run.
    """
    place = {client.number: i for i, client in enumerate(joining)}
    gone = select(withdrawals.c.client, entries.c.at).join(entries, withdrawals.c.entry == entries.c.entry)
    for number, at in connection.execute(gone):
        if number in place:
            raise InputError(f"client {joining[place[number]].name!r} withdrew on {at[:10]}: it is in no new run.")
    query = select(budgets.c.client, budgets.c.rule, budgets.c.renyi_order).order_by(*budgets.primary_key)
    latest = {number: Rule(rule or "fixed", order) for number, rule, order in connection.execute(query)}
    for number, i in place.items():
        latest.get(number, Rule(SAFE)).check(joining[i].name, plan)


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


def write_run(connection: Connection, name: str, plan: Plan, joining: Sequence[Client], note: str | None) -> None:
    """A run with its groups and its members, as one entry."""
    last = connection.execute(select(func.max(groups.c.group))).scalar() or 0
    named = [(last + i, row.group.name) for i, row in enumerate(plan.groups, 1)]
    group = [last + i for i, row in enumerate(plan.groups, 1) for _ in range(row.group.clients)]
    joined = sorted((g, *one, place) for place, (g, one) in enumerate(zip(group, joining, strict=True)))
    rows = membership_rows(name, named, [(g, client, place) for g, _, client, place in joined])
    detail = {"plan": plan.digest, "groups": len(named)} | ({"note": note} if note else {})
    run = append(connection, "run", detail=detail, rows=rows).entry
    insert_rows(connection, runs, [(run, name)])
    insert_rows(connection, groups, [(number, run, group_name) for number, group_name in named])
    insert_rows(connection, members, ((number, g, place) for g, number, _, place in joined))
