"""What a run writes into the log, and what must hold before: its beginning, charges of its rounds, other plans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from nestegg.checks import suggestion
from nestegg.errors import InputError
from nestegg.ledger.changes import Given
from nestegg.ledger.history import RunState
from nestegg.ledger.holders import Client
from nestegg.ledger.log import append, membership_rows, store_plan
from nestegg.ledger.rules import SAFE, Rule, new_rule, rule_for_plan
from nestegg.ledger.schema import budgets, charges, entries, groups, insert_rows, members, runs, withdrawals
from nestegg.planning import Budget, Plan, check_plan

_LISTED = 5  # runs that a sentence names


def is_known(connection: Connection, run: str) -> bool:
    """Whether a run of this name has begun."""
    return connection.execute(select(runs.c.run).where(runs.c.name == run)).first() is not None


def find_run(connection: Connection, name: str, place: str) -> str:
    """The name of the run that is meant by it: the whole of it, its folder's name, or a beginning that no other has.

    Raises:
        InputError: there is none, or there are several.
    """
    names: list[str] = list(connection.execute(select(runs.c.name).order_by(runs.c.run)).scalars())
    if name in names:
        return name
    begin = [one for one in names if one.startswith(name)]
    of_folder = [one for one in begin if re.fullmatch(r"-[0-9a-f]{8}", one.removeprefix(name))]
    found = of_folder or begin
    if not found or not name:
        raise InputError(f"{place} knows no run {name!r}.{suggestion(name, names)}")
    if len(found) > 1:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise InputError(f"run = {name!r} may mean {', '.join(found[:_LISTED])}{more}: give the whole name.")
    return found[0]


def check_run(name: str, plan: Plan, members_: Sequence[str]) -> None:
    """What must hold for a run to begin, whatever the ledger says."""
    if not name.strip():
        raise InputError(f"name = {name!r} must be a word: every run has a name.")
    check_plan(plan)
    if any(0.0 in row.noise_multiplier for row in plan.groups):
        raise InputError(f"privacy.method = {plan.method!r} adds no noise: there is no budget it could be charged to.")
    if len(members_) != plan.clients or len(set(members_)) != plan.clients:
        raise InputError(f"members has {len(set(members_))} different clients; the plan is for {plan.clients}.")


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
    rows = [row for row in plan.groups for _ in range(row.group.clients)]
    rules, given = dict[tuple[str, Budget], Rule](), []
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
            raise InputError(
                f"client {joining[place[number]].name!r} withdrew on {at[:10]}: it is in no new run. Take it out of "
                "the data and the budgets."
            )
    query = select(budgets.c.client, budgets.c.rule, budgets.c.renyi_order).order_by(*budgets.primary_key)
    latest = {number: Rule(rule or "fixed", order) for number, rule, order in connection.execute(query)}
    for number, i in place.items():
        latest.get(number, Rule(SAFE)).check(joining[i].name, plan)


def write_run(connection: Connection, name: str, plan: Plan, joining: Sequence[Client], note: str | None) -> None:
    """A run with its plan, its groups and its members, as one entry."""
    store_plan(connection, plan)
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


def charge_round(connection: Connection, state: RunState, plan: Plan, round_: int, kind: str = "reserve") -> str:
    """A round's charges, as one entry; returns its hash."""
    rows = _charges(state, plan, round_)
    entry = append(connection, kind, run=state.number, round_=round_, rows=rows)
    insert_rows(connection, charges, ((entry.entry, *row) for row in rows))
    return entry.hash


def enter_plan(connection: Connection, state: RunState, plan: Plan, after: int) -> None:
    """Another plan for the rounds after one, as one entry."""
    store_plan(connection, plan)
    append(connection, "replan", run=state.number, round_=after, detail={"plan": plan.digest})


def check_own(state: RunState, own: Plan, plan: Plan) -> None:
    """A plan that a checkpoint names was read from a file: it must hold, and be one that the run can have had."""
    if plan.digest == own.digest:
        return
    check_plan(plan)
    if _outline(plan) != _outline(own):
        raise InputError(
            f"the plan {plan.digest[:16]} of the checkpoint is not of the run {state.name!r}: it has other "
            "groups, another method or another number of rounds."
        )


def check_descent(state: RunState, plan: Plan, results: Sequence[str]) -> None:
    """Of two results of a round one counts: the one that was released, and what follows from it."""
    done = len(results)
    if done > plan.rounds:
        raise InputError(f"the checkpoint of round {done} is not of the run {state.name!r}, which has {plan.rounds}.")
    for round_, result in enumerate(results[: state.done], 1):
        if state.results.get(round_) != result:
            raise InputError(
                f"the checkpoint of round {done} is not of the run {state.name!r} that the ledger knows: another "
                f"result of round {round_} was released. A copy of the run may have it."
            )
    if state.lost & set(results):
        raise InputError(f"run {state.name!r} has gone back behind the checkpoint of round {done}, which is void.")
    if done < state.done == plan.rounds:
        raise InputError(f"run {state.name!r} is complete; this checkpoint of round {done} is an older one.")


def recover(connection: Connection, state: RunState, done: int, plan: Plan) -> tuple[list[str], Plan | None]:
    """Charge rounds that a checkpoint holds and the ledger has forgotten: spent is spent, whatever the budget.

    Returns:
        What was done, in sentences, and the plan if it was put in force by that.
    """
    first, said, entered = state.reserved + 1, [], None
    if state.claim is not None:
        if _charged(connection, state) == _charges(state, plan, first - 1):
            said.append(f"Round {first - 1} had its checkpoint but was not marked as released: it is now.")
        else:  # reserved by another plan than it was made by: that stays paid too
            first -= 1
            append(connection, "rewind", run=state.number, round_=state.done)
    if plan.digest != state.plan and first <= done:
        enter_plan(connection, state, plan, first - 1)
        said.append(f"The plan {plan.digest[:16]} of the checkpoint is in force again.")
        entered = plan
    for round_ in range(first, done + 1):
        charge_round(connection, state, plan, round_, kind="recover")
        said.append(f"Round {round_} is in the checkpoint and was not in the ledger: it is charged now.")
    return said, entered


def _charges(state: RunState, plan: Plan, round_: int) -> list[tuple[Any, ...]]:
    """What a plan charges each group for a round."""
    return [
        (group, row.sampling_rate[round_ - 1], row.noise_multiplier[round_ - 1])
        for group, row in zip(state.groups, plan.groups, strict=True)
    ]


def _charged(connection: Connection, state: RunState) -> list[tuple[Any, ...]]:
    """What the open reservation has charged."""
    query = select(charges).where(charges.c.entry == state.paid[state.done + 1]).order_by(charges.c.group)
    return [tuple(row[1:]) for row in connection.execute(query)]


def _outline(plan: Plan) -> tuple[object, ...]:
    """What planning anew never changes."""
    return plan.method, plan.rounds, [(row.group.name, row.group.clients) for row in plan.groups]
