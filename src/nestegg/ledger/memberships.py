"""What each run has cost each client, line by line: the log, joined with plans and members."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from sqlalchemy import Connection, select

from nestegg.accounting import SMALLEST_DELTA, Charge, compose
from nestegg.ledger.history import History
from nestegg.ledger.holders import each_client
from nestegg.ledger.log import load_stored_plan
from nestegg.ledger.schema import CHUNK, clients
from nestegg.planning import Plan
from nestegg.planning.accounts import row_accountant
from nestegg.planning.losses import loss
from nestegg.planning.plan import finite_or_none


class Cost(NamedTuple):
    """ε of charges, by a plan's accountant and by PLD; None where it has no bound."""

    epsilon: float | None
    epsilon_pld: float | None


class Membership(NamedTuple):
    """A client in a run.

    Attributes:
        client: by name.
        run: by name.
        began: the day on which the run began.
        group: of the run.
        plan: digest of the plan in force.
        earlier_plans: digests of those before it, with spaces between them.
        rounds: that the client has paid for.
        accountant: of the plan.
        delta: of the plan.
        epsilon: that the run has cost, by itself, by the plan's accountant.
        epsilon_pld: the same by PLD.
        withdrawn: whether the client has withdrawn.
        note: what is to be known of the run's results, as "not for release".
    """

    client: str
    run: str
    began: str
    group: str
    plan: str
    earlier_plans: str
    rounds: int
    accountant: str
    delta: float
    epsilon: float | None
    epsilon_pld: float | None
    withdrawn: bool
    note: str


def cost_of(plan: Plan, group: str, charges: tuple[Charge, ...]) -> Cost:
    """Return ε of what a member of a plan's group was charged, at the plan's δ."""
    if not charges:
        return Cost(0.0, 0.0)
    row = next(one for one in plan.groups if one.group.name == group)
    spent = compose(row_accountant(plan, row), charges)
    by_pld = loss(charges, plan.delta).epsilon if plan.delta >= SMALLEST_DELTA else float("inf")
    return Cost(finite_or_none(float(spent.epsilon(plan.delta)[0])), finite_or_none(by_pld))


def each_membership(connection: Connection, history: History) -> Iterator[Membership]:
    """Every client in every run, in the order of clients and of runs.

    Names are read as they are needed, and ε is computed once for all members of a group that have paid the same.
    """
    run_of = {group: run for run in history.runs.values() for group in run.groups}

    @cache
    def joined(group: int, left: int | None) -> Membership:
        run, charges = run_of[group], history.charges_of((group,), left)
        plan = load_stored_plan(connection, run.plan, history.place)
        rounds, cost = sum(charge.rounds for charge in charges), cost_of(plan, run.groups[group], charges)
        about = (run.name, run.at[:10], run.groups[group], run.plan, " ".join(run.plans[:-1]), rounds)
        return Membership("", *about, plan.accountant, plan.delta, *cost, left is not None, run.note or "")

    query = select(clients).order_by(clients.c.client).execution_options(yield_per=CHUNK)
    named = iter(connection.execute(query))
    for number, key in each_client(connection):
        name = next(name for client, name in named if client == number)
        for group in key.groups:
            yield joined(group, key.withdrawn)._replace(client=name)
