"""Verification: the chain, plans and charges against each other, and every account, recomputed."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from nestegg.errors import VerificationError
from nestegg.ledger.accounts import Account, peer_account
from nestegg.ledger.history import History
from nestegg.ledger.holders import find_peers
from nestegg.ledger.log import CHARGING, Entry, load_stored_plan
from nestegg.ledger.schema import (
    budgets,
    charges,
    clients,
    entries,
    groups,
    members,
    other_spellings,
    runs,
    spellings,
    withdrawals,
)
from nestegg.planning import Plan


def verified(connection: Connection, place: str, noted: str | None) -> tuple[History, list[Account]]:
    """The log, replayed and checked, and all accounts; see `Ledger.verify`."""
    history, seen = History(place), noted is None
    plans: dict[int, Plan] = {}
    for entry in history.follow(connection):
        seen = seen or entry.hash == noted
        if entry.kind in ("run", "replan"):
            plans[entry.run or 0] = load_stored_plan(connection, entry.detail["plan"], place)
        elif entry.kind in CHARGING:
            _check_charges(entry, plans[entry.run or 0], place)
    if not seen:
        raise VerificationError(f"{place}: no entry has the noted hash {noted}: the log was cut or rewritten.")
    _check_counts(connection, history)
    accounts = [peer_account(history, peers) for peers in find_peers(connection)]
    over = [account for account in accounts if account.is_over]
    if over:
        raise VerificationError(
            f"{place}: client {over[0].example!r} is over budget: epsilon = {over[0].epsilon:.6g} of "
            f"{over[0].budget.epsilon:g} is spent."
        )
    return history, accounts


def _check_counts(connection: Connection, history: History) -> None:
    """No table may hold more than the log tells of."""
    found = dict(connection.execute(select(spellings.c.name, spellings.c.client)).all())
    if found != other_spellings(connection):
        raise VerificationError(f"{history.place}: the table 'spellings' is not what clients' names say.")
    groups_ = sum(len(run.groups) for run in history.runs.values())
    members_ = sum(run.members for run in history.runs.values())
    known = connection.execute(select(func.count(budgets.c.client.distinct()))).scalar_one()
    counts = {runs: len(history.runs), groups: groups_, members: members_, clients: known, budgets: history.budgets}
    counts[charges] = sum(charged.total() for charged in history.charges.values())
    counts[withdrawals], counts[entries] = len(history.left), history.position.entry
    for table, count in counts.items():
        if connection.execute(select(func.count()).select_from(table)).scalar_one() != count:
            raise VerificationError(f"{history.place}: the table {table.name!r} has rows that no entry tells of.")


def _check_charges(entry: Entry, plan: Plan, place: str) -> None:
    """A reservation must be what its run's plan says."""
    round_ = (entry.round or 0) - 1
    planned = [(row.sampling_rate[round_], row.noise_multiplier[round_]) for row in plan.groups]
    if [pair for _, *pair in entry.rows] != [list(pair) for pair in planned]:
        raise VerificationError(f"{place}: entry {entry.number} does not charge what the plan says.")
