"""Accounts: a budget, and everything that was charged to it, composed over all runs, by the account's own rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, func, or_, select

from nestegg.accounting import Charge, compose, merged
from nestegg.ledger.history import History
from nestegg.ledger.holders import AccountKey, Peers, each_client, find_client
from nestegg.ledger.rules import FIXED, Rule
from nestegg.ledger.schema import budgets, charges, clients, entries, groups, members, runs, withdrawals
from nestegg.planning import Budget
from nestegg.planning.accounts import pld_accountant
from nestegg.planning.plan import finite_or_none

# Curves are sums of many terms, and a sum depends on its order by this much at most. Nothing else is forgiven.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Part:
    """What taking part in a run has cost, so far; `note` is what is to be known of its results."""

    run: str
    group: str
    charges: tuple[Charge, ...]
    note: str = ""

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
        rule: by which it is kept.
        withdrawn: whether it has withdrawn: it is in no new run, and its open ones go on without it.
    """

    example: str
    clients: int
    budget: Budget
    parts: tuple[Part, ...]
    rule: Rule = FIXED
    withdrawn: bool = False

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything that was charged."""
        return merged(charge for part in self.parts for charge in part.charges)

    @property
    def note(self) -> str:
        """What is to be known of results of its runs, as "not for release"."""
        return "; ".join(dict.fromkeys(part.note for part in self.parts if part.note))

    @cached_property
    def epsilon(self) -> float:
        """ε that is spent, by the account's rule: the number that the ledger holds against the budget."""
        return self.epsilon_at(self.budget.delta)

    def epsilon_at(self, delta: float) -> float:
        """ε that is spent, at another δ."""
        return self.rule.epsilon(self.charges, delta)

    @cached_property
    def epsilon_pld(self) -> float:
        """ε that is spent, by PLD: tighter, slower to compute, and true only if no plan depended on a result."""
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
        """Whether more is spent than the budget. By the rule fixed all accountants are bounds: one is enough."""
        over = is_over(self.epsilon, self.budget.epsilon)
        if not over or self.rule.is_adaptive:
            return over
        if all(charge.sampling_rate == 1.0 for charge in self.charges):
            return is_over(Rule("gaussian").epsilon(self.charges, self.budget.delta), self.budget.epsilon)
        return is_over(self.epsilon_pld, self.budget.epsilon)

    def without(self, run: str) -> float:
        """ε that all other runs have spent."""
        charged = merged(c for part in self.parts if part.run != run for c in part.charges)
        return self.rule.epsilon(charged, self.budget.delta)

    def within(self, run: str) -> float:
        """ε that one run has spent."""
        charged = merged(c for part in self.parts if part.run == run for c in part.charges)
        return self.rule.epsilon(charged, self.budget.delta)

    def numbers(self) -> dict[str, Any]:
        """The account's numbers, for JSON and tables: what may be spent, what is, and what is left, by its own rule."""
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "account": self.rule.name,
            "order": self.rule.order,
            "epsilon_spent": self.epsilon,
            "epsilon_left": self.left,
            "withdrawn": self.withdrawn,
            "runs": len(self.parts),
            "note": self.note,
        }

    def to_dict(self) -> dict[str, Any]:
        """All there is to say of the account, by PLD too, which takes a moment."""
        parts = [{"run": part.run, "group": part.group, "rounds": part.rounds} for part in self.parts]
        return {
            "example": self.example,
            "clients": self.clients,
            **self.numbers(),
            "promise": self.rule.sentence,
            "epsilon_spent_pld": finite_or_none(self.epsilon_pld),
            "runs": parts,
        }


def is_over(epsilon: float, budget: float) -> bool:
    """Whether more is spent than a budget."""
    return epsilon > budget * (1.0 + _ROUNDING)


def client_account(connection: Connection, client: str, place: str) -> Account:
    """A client's account, from its own rows alone."""
    number, name = find_client(connection, client, place)
    latest = select(budgets).where(budgets.c.client == number).order_by(budgets.c.entry.desc())
    *_, epsilon, delta, rule, order = connection.execute(latest.limit(1)).one()
    left = connection.execute(select(withdrawals.c.entry).where(withdrawals.c.client == number)).scalar()
    taken = connection.execute(
        select(groups.c.group, groups.c.run, runs.c.name, groups.c.name, entries.c.detail)
        .select_from(members.join(groups).join(runs).join(entries, entries.c.entry == runs.c.run))
        .where(members.c.client == number)
        .order_by(groups.c.group)
    )
    parts = []
    for group, run, run_name, group_name, detail in taken.all():
        q, sigma = charges.c.sampling_rate, charges.c.noise_multiplier
        query = select(q, sigma, func.count()).join(entries, charges.c.entry == entries.c.entry)
        query = query.where(entries.c.run == run, charges.c.group == group)
        if left is not None:
            query = query.where(or_(entries.c.entry < left, entries.c.kind == "recover"))
        found = connection.execute(query.group_by(q, sigma))
        note = str(json.loads(detail).get("note", ""))
        parts.append(Part(run_name, group_name, tuple(Charge(*row) for row in found), note))
    kept = Rule(rule or "fixed", order)
    return Account(name, 1, Budget(epsilon, delta), tuple(parts), kept, left is not None)


def peer_account(history: History, peers: Peers) -> Account:
    """The account of peers, from the log."""
    parts = tuple(
        Part(run.name, run.groups[group], history.charges_of((group,), peers.withdrawn), run.note or "")
        for group in peers.groups
        for run in history.runs.values()
        if group in run.groups
    )
    return Account(peers.example, peers.clients, peers.budget, parts, peers.rule, peers.withdrawn is not None)


def each_account(connection: Connection, history: History) -> Iterator[tuple[str, Account]]:
    """Every client with its account, from the log; peers share one."""
    names = dict(connection.execute(select(clients.c.client, clients.c.name)).all())
    known: dict[AccountKey, Account] = {}
    for number, key in each_client(connection):
        if key not in known:
            known[key] = peer_account(history, Peers(*key, 1, names[number]))
        yield names[number], known[key]
