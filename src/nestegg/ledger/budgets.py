"""Budgets that replace others: what must hold, and what is written then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection, select

from nestegg.errors import InputError
from nestegg.ledger.accounts import peer_account
from nestegg.ledger.changes import next_rule
from nestegg.ledger.enrolment import Client, Given, all_clients, near
from nestegg.ledger.history import History
from nestegg.ledger.peers import Peers, Standing, each_client
from nestegg.ledger.rules import Rule
from nestegg.ledger.tables import clients
from nestegg.planning import Budget


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
    checked: set[tuple[Standing, Budget]] = set()
    history: History | None = None
    for number, standing in each_client(connection):
        if number not in budget_of:
            continue
        client, budget = budget_of[number]
        kept = next_rule(client.name, standing, budget, rule)
        if (Budget(standing.epsilon, standing.delta), Rule(standing.rule, standing.order)) == (budget, kept):
            continue
        if standing.withdrawn is not None:
            raise InputError(f"client {client.name!r} has withdrawn; its budget stays as it is.")
        if standing.groups and (standing, budget) not in checked:
            checked.add((standing, budget))
            history = history or History.of(connection, place)
            _check_spent(history, client.name, standing, budget, change_delta)
        yield Given(client, budget, kept)


def _check_spent(history: History, client: str, standing: Standing, budget: Budget, change_delta: bool) -> None:
    """Nobody gets a budget below what is spent, or one by which less is spent, without a word."""
    then = standing._replace(epsilon=budget.epsilon, delta=budget.delta)
    account = peer_account(history, Peers.of(then, 1, client))
    if account.charges and budget.delta != standing.delta and not change_delta:
        raise InputError(
            f"client {client!r}: delta = {budget.delta:g} would replace {standing.delta:g}, by which it has spent "
            f"epsilon = {account.epsilon_at(standing.delta):.6g}, and not {account.epsilon:.6g}. If that is meant: "
            "--change-delta, or change_delta=True."
        )
    if account.is_over:
        raise InputError(
            f"client {client!r}: epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is below what it has spent, "
            f"{account.epsilon:.6g}."
        )
