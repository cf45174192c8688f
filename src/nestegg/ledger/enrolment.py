"""Enrolment: clients, their budgets and their places in runs, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, func, select

from nestegg.errors import InputError
from nestegg.ledger.database import CHUNK, insert_rows
from nestegg.ledger.log import append, membership_rows
from nestegg.ledger.tables import budgets, clients, groups, members, runs
from nestegg.planning import Budget, Plan, check_plan


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
    """A client's name, which is the same however it is written down."""
    if not name or name != name.strip() or not name.isprintable():
        raise InputError(f"client = {name!r} must be a name without spaces around it or unprintable characters.")
    return name


def client_numbers(connection: Connection, names: Iterable[str]) -> dict[str, int]:
    """The number of every client; those not known get one."""
    wanted = [checked_name(name) for name in names]
    numbers: dict[str, int] = {}
    for start in range(0, len(wanted), CHUNK):
        chosen = clients.c.name.in_(wanted[start : start + CHUNK])
        numbers.update(connection.execute(select(clients.c.name, clients.c.client).where(chosen)).all())
    last = connection.execute(select(func.max(clients.c.client))).scalar() or 0
    fresh = {name: last + i for i, name in enumerate((n for n in wanted if n not in numbers), 1)}
    insert_rows(connection, clients, ((number, name) for name, number in fresh.items()))
    return numbers | fresh


def without_budget(
    connection: Connection, names: Sequence[str], unknown: Sequence[Budget] | None, numbers: Mapping[str, int]
) -> list[tuple[int, str, Budget]]:
    """Those without a lifetime budget, with the one they bring."""
    known = set(connection.execute(select(budgets.c.client).distinct()).scalars())
    missing = [i for i, name in enumerate(names) if numbers[name] not in known]
    if missing and unknown is None:
        raise InputError(f"client {names[missing[0]]!r} has no lifetime budget in the ledger.")
    return [(numbers[names[i]], names[i], unknown[i]) for i in missing if unknown is not None]


def write_budgets(connection: Connection, given: Sequence[tuple[int, str, Budget]]) -> None:
    """Clients' budgets, as one entry."""
    if not given:
        return
    ordered = sorted(given, key=lambda one: one[0])
    rows = [(name, budget.epsilon, budget.delta) for _, name, budget in ordered]
    entry = append(connection, "budgets", rows=rows).entry
    insert_rows(connection, budgets, ((number, entry, budget.epsilon, budget.delta) for number, _, budget in ordered))


def write_run(connection: Connection, name: str, plan: Plan, numbers: Sequence[int], names: Sequence[str]) -> None:
    """A run with its groups and members, as one entry."""
    last = connection.execute(select(func.max(groups.c.group))).scalar() or 0
    named = [(last + i, row.group.name) for i, row in enumerate(plan.groups, 1)]
    group = [last + i for i, row in enumerate(plan.groups, 1) for _ in range(row.group.clients)]
    joined = sorted(zip(group, numbers, names, strict=True))
    rows = membership_rows(name, named, [(g, client) for g, _, client in joined])
    run = append(connection, "run", detail={"plan": plan.digest, "groups": len(named)}, rows=rows).entry
    insert_rows(connection, runs, [(run, name)])
    insert_rows(connection, groups, [(number, run, group_name) for number, group_name in named])
    insert_rows(connection, members, ((number, g) for g, number, _ in joined))
