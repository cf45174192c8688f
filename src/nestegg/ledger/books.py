"""The books of a run: reserve a round before any client works for it, release it with its checkpoint.

Every step is one transaction: read what is new in the log, check, write, commit. A refusal writes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy import Connection

from nestegg.accounting import Array, Charge, RdpAccountant, merged, smallest_noise
from nestegg.errors import BudgetError, InputError
from nestegg.ledger.accounts import Account, peer_account
from nestegg.ledger.database import Database, insert_rows
from nestegg.ledger.history import History, RunState
from nestegg.ledger.log import append
from nestegg.ledger.peers import epsilons, find_peers, over_budget, spending
from nestegg.ledger.plans import load_stored_plan, store_plan
from nestegg.ledger.tables import charges
from nestegg.planning import GroupPlan, Plan, Standing, replanned
from nestegg.planning.judge import FINER, pld_accountant


class RunBooks:
    """What one run may still spend, and what it has. Other processes may spend the same clients' budgets meanwhile.

    Attributes:
        plan: the plan in force.
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
        """Digests of the plans the run has had."""
        return self._state.plans

    def reserve(self, round_: int) -> str:
        """Charge a round to everybody in the run, durably; returns the claim with which to release it.

        A round that was reserved and never released is claimed again: it is not charged twice.

        Raises:
            BudgetError: somebody would go over their lifetime budget. Nothing is charged.
        """
        with self._database.writing() as connection:
            self._refresh(connection)
            state = self._state
            if round_ <= state.done:
                raise InputError(f"round {round_} of run {state.name!r} was released; it is never run again.")
            if round_ != state.done + 1 or round_ > self.plan.rounds:
                raise InputError(
                    f"round {round_} of run {state.name!r} is not the next one, which is {state.done + 1}."
                )
            if state.claim is not None:
                return append(connection, "retry", run=state.number, round_=round_).hash
            self._afford(self._price(round_ - 1, round_), f"round {round_}", (round_ - 1, round_))
            return self._charge(connection, round_)

    def release(self, round_: int, claim: str, result: str) -> None:
        """The round's checkpoint is written, and `result` is its digest: the round is out, and never runs again.

        Raises:
            InputError: another process has claimed or released the round meanwhile; its result is the one that counts.
        """
        with self._database.writing() as connection:
            self._refresh(connection)
            if self._state.claim != claim or round_ != self._state.done + 1:
                raise InputError(f"round {round_} of run {self._state.name!r} was taken over by another process.")
            append(connection, "release", run=self._number, round_=round_, detail={"result": result})

    def reconcile(self, done: int, result: str | None) -> list[str]:
        """Bring the log and a run's checkpoint into agreement, always towards the safe side.

        Args:
            done: rounds that the checkpoint holds.
            result: its digest.

        Returns:
            What was found and done about it, in sentences.
        """
        with self._database.writing() as connection:
            self._refresh(connection)
            state, said = self._state, []
            reserved = state.done + (state.claim is not None)
            if done == state.done and state.result not in (None, result):
                raise InputError(f"the checkpoint of round {done} is not the one that run {state.name!r} released.")
            for round_ in range(state.done + 1, done + 1):
                if round_ > reserved:
                    self._charge(connection, round_, {"recovered": True})
                    said.append(f"Round {round_} is in the checkpoint and was not in the ledger: it is charged now.")
                else:
                    said.append(f"Round {round_} had its checkpoint but was not marked as released: it is now.")
                detail = {"result": result if round_ == done else None}
                append(connection, "release", run=state.number, round_=round_, detail=detail)
            if done < state.done:
                append(connection, "rewind", run=state.number, round_=done, detail={"result": result})
                lost = f"round {state.done}" if done + 1 == state.done else f"rounds {done + 1} to {state.done}"
                said.append(f"The released result of {lost} is lost: it stays paid for, and is to be paid for again.")
            elif done == state.done and state.claim is not None:
                said.append(f"Round {done + 1} was reserved and never released: it runs under the same reservation.")
        return said

    def check_rest(self) -> None:
        """Whether everybody can afford the rounds that are left, so that a run does not stop half-way.

        Raises:
            BudgetError: somebody cannot.
        """
        self._catch_up()
        first, last = self._reserved, self.plan.rounds
        if first < last:
            self._afford(self._price(first, last), f"the plan's rounds {first + 1} to {last}", (first, last))

    def replan(self) -> Plan:
        """Plan the rounds that are left anew, from what everybody has spent here and elsewhere; it is then in force."""
        with self._database.writing() as connection:
            self._refresh(connection)
            after = self._reserved
            if after >= self.plan.rounds:
                raise InputError(f"run {self._state.name!r} has no rounds left to plan.")
            plan = replanned(self.plan, after, self._standings(connection))
            store_plan(connection, plan)
            append(connection, "replan", run=self._number, round_=after, detail={"plan": plan.digest})
        self._catch_up()
        return self.plan

    def accounts(self) -> dict[str, Account]:
        """The tightest account of every group."""
        self._catch_up()
        share = epsilons(self._spent, self._peers) / np.array([one.budget.epsilon for one in self._peers])
        tightest = {self.plan.groups[self._columns[i]].group.name: self._peers[i] for i in share.argsort()}
        return {name: peer_account(self._history, peers) for name, peers in tightest.items()}

    @property
    def _state(self) -> RunState:
        """How far the run had come when the log was last read."""
        return self._history.runs[self._number]

    @property
    def _reserved(self) -> int:
        """Rounds that are paid: those that are done, and one that is reserved."""
        return self._state.done + (self._state.claim is not None)

    def _standings(self, connection: Connection) -> dict[str, list[Standing]]:
        """Where the members of every group stand: for life, and in this run, within the budget it began with."""
        first = load_stored_plan(connection, self._state.plans[0], self._database.place)
        standings: dict[str, list[Standing]] = {}
        for number, row in zip(self._state.groups, first.groups, strict=True):
            here = merged((*row.already_spent, *self._history.charges_of((number,))))
            standings[row.group.name] = [Standing(row.group.budget, here)]
        for column, peers in zip(self._columns, self._peers, strict=True):
            name = self.plan.groups[column].group.name
            standings[name].append(Standing(peers.budget, self._history.charges_of(peers.groups)))
        return standings

    def _open(self, connection: Connection) -> None:
        """Build the books from the whole history."""
        if self.plan.digest != self._state.plan:
            self.plan = load_stored_plan(connection, self._state.plan, self._database.place)
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

    def _catch_up(self) -> None:
        with self._database.reading() as connection:
            self._refresh(connection)

    def _refresh(self, connection: Connection) -> None:
        """Follow the log: charges are added to the books, anything else that concerns everybody re-opens them."""
        fresh = False
        for entry in self._history.follow(connection):
            if entry.kind in ("budgets", "run", "replan"):
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

    def _price(self, first: int, last: int) -> Any:
        """What rounds first + 1 to last cost a member of each group."""
        if last - first == 1:
            q, sigma = zip(
                *((row.sampling_rate[first], row.noise_multiplier[first]) for row in self.plan.groups), strict=True
            )
            return self._accountant.spend(q, sigma)
        return spending(self._accountant, [_rounds(row, first, last) for row in self.plan.groups])

    def _afford(self, price: Any, what: str, rounds: tuple[int, int]) -> None:
        after = epsilons(self._spent + price.rows(self._columns), self._peers)
        over = over_budget(after, self._peers)
        if over:
            raise BudgetError(self._refusal(over, after, what, rounds))

    def _refusal(self, over: list[int], after: Array, what: str, rounds: tuple[int, int]) -> str:
        """Who, how much, and what would fit."""
        worst = over[0]
        peers, row = self._peers[worst], self.plan.groups[int(self._columns[worst])]
        spent = float(epsilons(self._spent, self._peers)[worst])
        clients = sum(self._peers[i].clients for i in over)
        others = f" and {clients - 1} more" if clients > 1 else ""
        return (
            f"client {peers.example!r} of group {row.group.name!r}{others} would go over budget: epsilon = {spent:.4g} "
            f"of {peers.budget.epsilon:g} is spent, and {what} would make it {after[worst]:.4g}. "
            f"{self._what_fits(worst, rounds)} Nothing was charged."
        )

    def _what_fits(self, worst: int, rounds: tuple[int, int]) -> str:
        """How many of the rounds fit, or how much noise one needs."""
        (first, last), peers = rounds, self._peers[worst]
        row, spent = self.plan.groups[int(self._columns[worst])], self._spent.rows(np.array([worst]))
        if last - first > 1:
            low, high = first, last
            while high - low > 1:  # `low` rounds fit, `high` do not
                middle = (low + high) // 2
                total = spent + spending(self._accountant, [_rounds(row, first, middle)])
                low, high = (middle, high) if not over_budget(epsilons(total, [peers]), [peers]) else (low, middle)
            return f"{low - first} of these {last - first} rounds would fit."
        q, budget = row.sampling_rate[first], peers.budget
        noise = float(smallest_noise(self._accountant, q, 1, budget.epsilon, budget.delta, spent)[0])
        if not np.isfinite(noise):
            return "No noise would be enough."
        return f"It has noise {row.noise_multiplier[first]:.4g} at rate {q:g}; noise of {noise:.4g} would fit."

    def _charge(self, connection: Connection, round_: int, detail: dict[str, Any] | None = None) -> str:
        rows = [
            (group, row.sampling_rate[round_ - 1], row.noise_multiplier[round_ - 1])
            for group, row in zip(self._state.groups, self.plan.groups, strict=True)
        ]
        entry = append(connection, "reserve", run=self._number, round_=round_, detail=detail, rows=rows)
        insert_rows(connection, charges, ((entry.entry, *row) for row in rows))
        return entry.hash


def _rounds(row: GroupPlan, first: int, last: int) -> tuple[Charge, ...]:
    return merged(
        Charge(*pair) for pair in zip(row.sampling_rate[first:last], row.noise_multiplier[first:last], strict=True)
    )
