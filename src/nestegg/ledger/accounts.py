"""Accounts: a budget, and everything that was charged to it, composed over all runs, by RDP and by PLD."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import Connection, func, select

from nestegg.accounting import ORDERS, Charge, RdpAccountant, compose, merged
from nestegg.errors import InputError
from nestegg.ledger.history import History
from nestegg.ledger.peers import Peers, is_over
from nestegg.ledger.tables import budgets, charges, clients, entries, groups, members, runs
from nestegg.planning import Budget
from nestegg.planning.judge import pld_accountant


@dataclass(frozen=True)
class Part:
    """What taking part in a run has cost, so far."""

    run: str
    group: str
    charges: tuple[Charge, ...]

    @property
    def rounds(self) -> int:
        """Rounds that were paid."""
        return sum(charge.rounds for charge in self.charges)


@dataclass(frozen=True)
class Account:
    """The account of a client, or of peers.

    Attributes:
        example: the client, or one of the peers.
        clients: how many have this account.
        budget: for life.
        parts: the runs it took part in.
    """

    example: str
    clients: int
    budget: Budget
    parts: tuple[Part, ...]

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything that was charged."""
        return merged(charge for part in self.parts for charge in part.charges)

    @cached_property
    def epsilon(self) -> float:
        """ε that is spent, by RDP."""
        return epsilon(self.charges, self.budget.delta)

    @cached_property
    def epsilon_pld(self) -> float:
        """ε that is spent, by PLD: tighter, and slower to compute."""
        if not self.charges:
            return 0.0
        spent = compose(pld_accountant(self.charges), self.charges)
        return float(spent.epsilon(self.budget.delta)[0])

    @property
    def left(self) -> float:
        """ε that is not spent. It is no sum: a further release costs less than its own ε."""
        return max(self.budget.epsilon - self.epsilon, 0.0)

    @property
    def is_over(self) -> bool:
        """Whether more is spent than the budget. Both accountants are bounds: one that holds is enough."""
        return is_over(self.epsilon, self.budget.epsilon) and is_over(self.epsilon_pld, self.budget.epsilon)

    def without(self, run: str) -> float:
        """ε that all other runs have spent."""
        return epsilon(merged(c for part in self.parts if part.run != run for c in part.charges), self.budget.delta)

    def within(self, run: str) -> float:
        """ε that one run has spent."""
        return epsilon(merged(c for part in self.parts if part.run == run for c in part.charges), self.budget.delta)


def epsilon(charged: tuple[Charge, ...], delta: float) -> float:
    """ε of charges by RDP, for which only the orders around the best one need be computed.

    They are found on every eighth order. Each order bounds ε, so that a best one missed could only overstate it.
    """
    rough = int(compose(RdpAccountant(ORDERS[::8]), charged).best_order(delta)[0])
    near = RdpAccountant(ORDERS[max(8 * rough - 8, 0) : 8 * rough + 9])
    return float(compose(near, charged).epsilon(delta)[0])


def client_account(connection: Connection, client: str, place: str) -> Account:
    """A client's account, from its own rows alone."""
    number = connection.execute(select(clients.c.client).where(clients.c.name == client)).scalar()
    if number is None:
        raise InputError(f"{place} knows no client {client!r}.")
    latest = select(budgets).where(budgets.c.client == number).order_by(budgets.c.entry.desc())
    *_, epsilon, delta = connection.execute(latest.limit(1)).one()
    taken = connection.execute(
        select(groups.c.group, groups.c.run, runs.c.name, groups.c.name)
        .select_from(members.join(groups).join(runs))
        .where(members.c.client == number)
        .order_by(groups.c.group)
    )
    parts = []
    for group, run, run_name, group_name in taken.all():
        q, sigma = charges.c.sampling_rate, charges.c.noise_multiplier
        found = connection.execute(
            select(q, sigma, func.count())
            .join(entries, charges.c.entry == entries.c.entry)
            .where(entries.c.run == run, charges.c.group == group)
            .group_by(q, sigma)
        )
        parts.append(Part(run_name, group_name, tuple(Charge(*row) for row in found)))
    return Account(client, 1, Budget(epsilon, delta), tuple(parts))


def peer_account(history: History, peers: Peers) -> Account:
    """The account of peers, from the log."""
    parts = tuple(
        Part(run.name, run.groups[group], history.charges_of((group,)))
        for group in peers.groups
        for run in history.runs.values()
        if group in run.groups
    )
    return Account(peers.example, peers.clients, peers.budget, parts)
