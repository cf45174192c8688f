"""Who is in a run, what they have spent in all their runs, and what they can still afford."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy import Connection

from nestegg.accounting import Array, Charge, RdpAccountant, merged, smallest_noise
from nestegg.errors import BudgetError, InputError
from nestegg.ledger.accounts import Account, peer_account
from nestegg.ledger.database import Database
from nestegg.ledger.history import History, RunState
from nestegg.ledger.peers import epsilons, find_peers, over_budget, spending
from nestegg.ledger.plans import load_stored_plan
from nestegg.planning import GroupPlan, Plan, Standing
from nestegg.planning.judge import FINER, pld_accountant


class RunAccounts:
    """The accounts of a run's members. Other processes may charge the same clients meanwhile: the log tells.

    Attributes:
        plan: the plan that was in force when the books were opened, or that was put in force by them.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._history = History(database.place)
        with database.reading() as connection:
            for _ in self._history.follow(connection):
                pass
            run = self._history.run_named(name)
            if run is None:
                raise InputError(f"{database.place} knows no run {name!r}.")
            self._number = run.number
            self.plan = load_stored_plan(connection, run.plan, database.place)
            self._open(connection)

    @property
    def state(self) -> RunState:
        """How far the run has come, by now."""
        self._catch_up()
        return self._state

    @property
    def plans(self) -> list[str]:
        """Digests of the plans the run has had, by now."""
        return self.state.plans

    def stored_plan(self, digest: str) -> Plan:
        """One of the plans the run has had."""
        with self._database.reading() as connection:
            return load_stored_plan(connection, digest, self._database.place)

    def accounts(self) -> dict[str, Account]:
        """The tightest account of every group."""
        self._catch_up()
        share = epsilons(self._spent, self._peers) / np.array([one.budget.epsilon for one in self._peers])
        tightest = {self.plan.groups[self._columns[i]].group.name: self._peers[i] for i in share.argsort()}
        return {name: peer_account(self._history, peers) for name, peers in tightest.items()}

    def check_rest(self) -> None:
        """Whether everybody can afford the rounds that are left, so that a run does not stop half-way.

        Raises:
            BudgetError: somebody cannot.
        """
        self._catch_up()
        self._afford_rest(self.plan)

    @property
    def _state(self) -> RunState:
        """How far the run had come when the log was last read."""
        return self._history.runs[self._number]

    @property
    def _reserved(self) -> int:
        """Rounds that are paid: those that are done, and one that is reserved."""
        return self._state.done + (self._state.claim is not None)

    def _standings(self, connection: Connection) -> dict[str, list[Standing]]:
        """Where the members of every group stand: in this run, within the budget it began with, and for life."""
        first = load_stored_plan(connection, self._state.plans[0], self._database.place)
        standings: dict[str, list[Standing]] = {}
        for number, row in zip(self._state.groups, first.groups, strict=True):
            here = merged((*row.already_spent, *self._history.charges_of((number,))))
            standings[row.group.name] = [Standing("this run", row.group.budget, here)]
        for column, peers in zip(self._columns, self._peers, strict=True):
            charges = self._history.charges_of(peers.groups)
            name = self.plan.groups[column].group.name
            standings[name].append(Standing(f"client {peers.example}", peers.budget, charges))
        return standings

    def _open(self, connection: Connection) -> None:
        """Build the accounts from the whole history."""
        self._peers = find_peers(connection, self._number)
        column = {number: i for i, number in enumerate(self._state.groups)}
        self._columns = np.array([next(column[g] for g in one.groups if g in column) for one in self._peers])
        history = [self._history.charges_of(peers.groups) for peers in self._peers]
        # Of either kind; mypy need not know which.
        self._accountant: Any = RdpAccountant(self.plan.orders)
        if self.plan.accountant == "pld":
            planned = [charge for row in self.plan.groups for charge in row.charges()]
            self._accountant = pld_accountant([*planned, *(charge for one in history for charge in one)], FINER)
        self._spent: Any = spending(self._accountant, history)

    def _adopt(self, plan: Plan) -> None:
        """See the accounts as the accountant of another plan does."""
        self.plan = plan
        with self._database.reading() as connection:
            self._refresh(connection)
            self._open(connection)

    def _catch_up(self) -> None:
        with self._database.reading() as connection:
            self._refresh(connection)

    def _refresh(self, connection: Connection) -> None:
        """Follow the log: charges are added to the accounts, and whatever changes who is who re-opens them."""
        fresh = False
        for entry in self._history.follow(connection):
            if entry.kind in ("budgets", "run"):
                fresh = True
            elif entry.kind == "reserve" and not fresh:
                groups, q, sigma = zip(*entry.rows, strict=True)
                place = {group: i for i, group in enumerate(groups)}
                hit = [(i, place[g]) for i, peers in enumerate(self._peers) for g in peers.groups if g in place]
                if hit:
                    rows, prices = np.array(hit).T
                    cost = self._accountant.spend(q, sigma)
                    self._spent = self._spent.replaced(rows, self._spent.rows(rows) + cost.rows(prices))
        if fresh:
            self._open(connection)

    def _afford_round(self, round_: int) -> None:
        rows = [(row.sampling_rate[round_ - 1], row.noise_multiplier[round_ - 1]) for row in self.plan.groups]
        q, sigma = zip(*rows, strict=True)
        self._afford(self.plan, self._accountant.spend(q, sigma), round_ - 1, round_)

    def _afford_rest(self, plan: Plan) -> None:
        first, last = self._reserved, plan.rounds
        if first < last:
            price = spending(self._accountant, [_rounds(row, first, last) for row in plan.groups])
            self._afford(plan, price, first, last)

    def _afford(self, plan: Plan, price: Any, first: int, last: int) -> None:
        """Whether everybody can pay what rounds first + 1 to last cost a member of each group."""
        after = epsilons(self._spent + price.rows(self._columns), self._peers)
        over = over_budget(after, self._peers)
        if over:
            raise BudgetError(self._refusal(plan, over, after, first, last))

    def _refusal(self, plan: Plan, over: list[int], after: Array, first: int, last: int) -> str:
        """Who, how much, and what would fit."""
        worst = over[0]
        peers, row = self._peers[worst], plan.groups[int(self._columns[worst])]
        spent = self._spent.rows(np.array([worst]))
        clients = sum(self._peers[i].clients for i in over)
        others = f" and {clients - 1} more" if clients > 1 else ""
        if last - first == 1:
            what, fits = f"round {last}", self._fitting_noise(worst, row, first)
        else:
            rounds = self._fitting_rounds(worst, row, first, last)
            what, fits = f"rounds {first + 1} to {last}", f"{rounds} of these {last - first} rounds would fit."
        return (
            f"client {peers.example!r} of group {row.group.name!r}{others} would go over budget: epsilon = "
            f"{epsilons(spent, [peers])[0]:.4g} of {peers.budget.epsilon:g} is spent, and {what} would make it "
            f"{after[worst]:.4g}. {fits} Nothing was charged."
        )

    def _fitting_rounds(self, worst: int, row: GroupPlan, first: int, last: int) -> int:
        """How many of the rounds the worst can afford."""
        peers, spent = self._peers[worst], self._spent.rows(np.array([worst]))
        low, high = first, last
        while high - low > 1:  # rounds up to `low` fit, up to `high` do not
            middle = (low + high) // 2
            total = spent + spending(self._accountant, [_rounds(row, first, middle)])
            low, high = (low, middle) if over_budget(epsilons(total, [peers]), [peers]) else (middle, high)
        return low - first

    def _fitting_noise(self, worst: int, row: GroupPlan, first: int) -> str:
        """How much noise the worst needs in a round."""
        budget, spent = self._peers[worst].budget, self._spent.rows(np.array([worst]))
        q, sigma = row.sampling_rate[first], row.noise_multiplier[first]
        noise = float(smallest_noise(self._accountant, q, 1, budget.epsilon, budget.delta, spent)[0])
        if not np.isfinite(noise):
            return "No noise would be enough."
        return f"It has noise {sigma:.4g} at rate {q:g}; noise of {noise:.4g} would fit."


def _rounds(row: GroupPlan, first: int, last: int) -> tuple[Charge, ...]:
    pairs = zip(row.sampling_rate[first:last], row.noise_multiplier[first:last], strict=True)
    return merged(Charge(*pair) for pair in pairs)
