"""The books of a run: reserve a round before any client works for it, release it with its checkpoint.

Every step is one transaction: read what is new in the log, check, write, commit. A refusal writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, select

from nestegg.errors import BudgetError, InputError
from nestegg.ledger.database import insert_rows
from nestegg.ledger.log import append
from nestegg.ledger.plans import store_plan
from nestegg.ledger.run_accounts import RunAccounts
from nestegg.ledger.tables import charges
from nestegg.planning import Plan, check_plan, replanned

_TRIES = 5  # to plan anew while others spend


class RunBooks(RunAccounts):
    """What one run may still spend, and what it has."""

    def reserve(self, round_: int) -> str:
        """Charge a round of `plan` to everybody in the run, durably; returns the claim with which to release it.

        A round that was reserved and never released is claimed again: it is not charged twice.

        Raises:
            BudgetError: somebody would go over their lifetime budget. Nothing is charged.
            InputError: the round is not the next one, or another plan is in force by now.
        """
        self._catch_up()  # what takes long is done before others have to wait
        with self._database.writing() as connection:
            self._refresh(connection)
            state = self._state
            if state.plan != self.plan.digest:
                raise InputError(f"run {state.name!r} was planned anew meanwhile: it must be opened again to go on.")
            if round_ <= state.done:
                raise InputError(f"round {round_} of run {state.name!r} was released; it is never run again.")
            if round_ != state.done + 1 or round_ > self.plan.rounds:
                raise InputError(
                    f"round {round_} of run {state.name!r} is not the next one, which is {state.done + 1}."
                )
            self._check_places()
            if state.claim is not None:
                return append(connection, "retry", run=state.number, round_=round_).hash
            self._afford(self.plan, round_ - 1, round_)
            return self._charge(connection, self.plan, round_)

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

    def reconcile(self, results: Sequence[str], plan: Plan | None = None) -> list[str]:
        """Bring the log and a run's checkpoint into agreement, always towards the safe side.

        Args:
            results: digests of the checkpoints that led to this one, round by round, its own last.
            plan: that it was made by; by default the plan in force.

        Returns:
            What was found and done about it, in sentences.

        Raises:
            InputError: it does not descend from what this run has released, would undo a run that is complete, or was
                made by a plan that cannot be one of this run's.
        """
        done, said = len(results), []
        if plan is not None:
            self._check_own(plan)
        if done > self.plan.rounds:
            raise InputError(
                f"the checkpoint of round {done} is not of the run {self._state.name!r}, which has {self.plan.rounds}."
            )
        with self._database.writing() as connection:
            self._refresh(connection)
            self._check_descent(results)
            if done > self._state.done:
                said = self._recover(connection, done, plan or self.plan)
            elif done < self._state.done:
                last = self._state.done
                lost = f"round {last}" if done + 1 == last else f"rounds {done + 1} to {last}"
                append(connection, "rewind", run=self._number, round_=done)
                said = [f"The released result of {lost} is lost: it stays paid for, and is to be paid for again."]
            elif self._state.claim is not None:
                said = [f"Round {done + 1} was reserved and never released: it runs under the same reservation."]
            for round_ in range(self._state.done + 1, done + 1):
                detail = {"result": results[round_ - 1]}
                append(connection, "release", run=self._number, round_=round_, detail=detail)
        self._adopt(self.plan)
        return said

    def _check_descent(self, results: Sequence[str]) -> None:
        """Of two results of a round one counts: the one that was released, and what follows from it."""
        state, done = self._state, len(results)
        for round_, result in enumerate(results[: state.done], 1):
            if state.results.get(round_) != result:
                raise InputError(
                    f"the checkpoint of round {done} is not of the run {state.name!r} that the ledger knows: another "
                    f"result of round {round_} was released. A copy of the run may have it."
                )
        if state.lost & set(results):
            raise InputError(f"run {state.name!r} has gone back behind the checkpoint of round {done}, which is void.")
        if done < state.done == self.plan.rounds:
            raise InputError(f"run {state.name!r} is complete; this checkpoint of round {done} is an older one.")

    def _check_own(self, plan: Plan) -> None:
        """A plan that a checkpoint names was read from a file: it must hold, and be one that this run can have had."""
        if plan.digest == self.plan.digest:
            return
        check_plan(plan)
        if _outline(plan) != _outline(self.plan):
            raise InputError(
                f"the plan {plan.digest[:16]} of the checkpoint is not of the run {self._state.name!r}: it has other "
                "groups, another method or another number of rounds."
            )

    def replan(self, acceptable: Callable[[Plan], None] = lambda plan: None) -> Plan:
        """Plan the rounds that are left anew, from what everybody has spent here and elsewhere, and put it in force.

        Args:
            acceptable: raises if the run cannot go on by a plan.
        """
        for _ in range(_TRIES):
            with self._database.reading() as connection:
                self._refresh(connection)
                state, after = self._state, self._reserved
                if after >= self.plan.rounds:
                    raise InputError(f"run {state.name!r} has no rounds left to plan.")
                if state.plan != self.plan.digest:
                    raise InputError(f"run {state.name!r} was planned anew meanwhile: it must be opened again.")
                standings = self._standings(connection)
            plan = replanned(self.plan, after, standings)  # others go on meanwhile
            acceptable(plan)
            if self._put_in_force(plan, after):
                return plan
        raise InputError(f"run {state.name!r} cannot be planned anew while it or others spend so fast.")

    def _put_in_force(self, plan: Plan, after: int) -> bool:
        """Whether the plan still fits what others have spent meanwhile; if so, it is now in force."""
        check_plan(plan)
        before = self.plan
        self._adopt(plan)
        with self._database.writing() as connection:
            self._refresh(connection)
            fits = after == self._reserved and self._state.plan == before.digest
            try:
                self._afford_rest(plan)
            except BudgetError:
                fits = False
            if fits:
                self._enter_plan(connection, plan, after)
        if not fits:
            self._adopt(before)
        return fits

    def _recover(self, connection: Connection, done: int, plan: Plan) -> list[str]:
        """Charge rounds that the checkpoint holds and the ledger has forgotten: spent is spent, whatever the budget."""
        first, said = self._reserved + 1, []
        if self._state.claim is not None:
            if self._charged(connection) == self._rows(plan, first - 1):
                said.append(f"Round {first - 1} had its checkpoint but was not marked as released: it is now.")
            else:  # reserved by another plan than it was made by: that stays paid too
                first -= 1
                append(connection, "rewind", run=self._number, round_=self._state.done)
        if plan.digest != self._state.plan and first <= done:
            self._enter_plan(connection, plan, first - 1)
            said.append(f"The plan {plan.digest[:16]} of the checkpoint is in force again.")
            self.plan = plan
        for round_ in range(first, done + 1):
            self._charge(connection, plan, round_, kind="recover")
            said.append(f"Round {round_} is in the checkpoint and was not in the ledger: it is charged now.")
        return said

    def _charged(self, connection: Connection) -> list[tuple[Any, ...]]:
        """What the open reservation has charged."""
        entry = self._state.paid[self._state.done + 1]
        query = select(charges).where(charges.c.entry == entry).order_by(charges.c.group)
        return [tuple(row[1:]) for row in connection.execute(query)]

    def _rows(self, plan: Plan, round_: int) -> list[tuple[Any, ...]]:
        """What a plan charges each group for a round."""
        return [
            (group, row.sampling_rate[round_ - 1], row.noise_multiplier[round_ - 1])
            for group, row in zip(self._state.groups, plan.groups, strict=True)
        ]

    def _enter_plan(self, connection: Connection, plan: Plan, after: int) -> None:
        store_plan(connection, plan)
        append(connection, "replan", run=self._number, round_=after, detail={"plan": plan.digest})

    def _charge(self, connection: Connection, plan: Plan, round_: int, kind: str = "reserve") -> str:
        rows = self._rows(plan, round_)
        entry = append(connection, kind, run=self._number, round_=round_, rows=rows)
        insert_rows(connection, charges, ((entry.entry, *row) for row in rows))
        return entry.hash


def _outline(plan: Plan) -> tuple[object, ...]:
    """What planning anew never changes."""
    return plan.method, plan.rounds, [(row.group.name, row.group.clients) for row in plan.groups]
