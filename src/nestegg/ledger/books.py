"""The books of a run: reserve a round before any client works for it, release it with its checkpoint.

Every step is one transaction: read what is new in the log, check, write, commit. A refusal writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection

from nestegg.errors import BudgetError, InputError
from nestegg.ledger.accounts import Account
from nestegg.ledger.database import Database
from nestegg.ledger.history import RunState
from nestegg.ledger.holders import names_by_place
from nestegg.ledger.log import append, load_stored_plan
from nestegg.ledger.members import Members
from nestegg.ledger.run_entries import charge_round, check_descent, check_own, enter_plan, recover
from nestegg.planning import Plan, check_plan, replanned
from nestegg.planning.curves import Pace

CONDITION = (
    "These accounts are of the rule fixed: this holds only if the plan depends on no result that was released before."
)
_TRIES = 5  # to plan anew while others spend


class RunBooks:
    """What one run may still spend, and what it has."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        with database.reading() as connection:
            self._members = Members(connection, database.place, name)

    @property
    def plan(self) -> Plan:
        """The plan that was in force when the books were opened, or that was put in force by them."""
        return self._members.plan

    @property
    def state(self) -> RunState:
        """How far the run has come, by now."""
        return self._now().state

    @property
    def plans(self) -> list[str]:
        """Digests of the plans the run has had, by now."""
        return self.state.plans

    def stored_plan(self, digest: str) -> Plan:
        """One of the plans the run has had."""
        with self._database.reading() as connection:
            return load_stored_plan(connection, digest, self._database.place)

    def accounts(self) -> dict[str, Account]:
        """The tightest account of every group; of those whose members have all withdrawn, one of theirs."""
        return self._now().tightest()

    def conditions(self) -> list[str]:
        """What must be true for the members' budgets to hold, and no ledger can see, in sentences.

        An account of the rule fixed knows one plan. A second run, or a plan made anew after a release, may depend on
        what was seen meanwhile.
        """
        return [CONDITION] if self._now().are_conditional() else []

    def check_rest(self, last: int | None = None) -> None:
        """Whether everybody can afford the rounds that are left, so that a run does not stop half-way.

        Args:
            last: the last of them; by default that of the plan.

        Raises:
            BudgetError: somebody cannot.
            InputError: somebody has withdrawn, and the run cannot go on without.
        """
        members = self._now()
        if members.state.done < self.plan.rounds:
            members.places_left()
        members.check_afford(self.plan.rounds if last is None else last)

    def withdrawn(self) -> frozenset[int]:
        """The members that have withdrawn, by their places among all members, from 0: nobody may sample them.

        It is to be asked after `reserve`, for every round. Whoever withdraws later has paid for that round; whoever
        withdrew before has not, and is told of here.

        Raises:
            InputError: no round is reserved, or the run is of a ledger of version 1, which kept no places.
        """
        members = self._now()
        if members.state.claim is None:
            name = members.state.name
            raise InputError(f"run {name!r} has reserved no round: who has withdrawn is asked after that.")
        return members.places_left()

    def gone(self) -> dict[int, str]:
        """The members that have withdrawn by now, place and name: their data may be deleted, and nobody asks for it.

        It says nothing about the next round; see `withdrawn`.

        Raises:
            InputError: the run is of a ledger of version 1, which kept no places.
        """
        places = self._now().places_left()
        names = self.members() if places else ()
        return {place: names[place] for place in sorted(places)}

    def members(self) -> tuple[str, ...]:
        """The names of all members, by place."""
        with self._database.reading() as connection:
            return tuple(names_by_place(connection, self.state.number))

    def reserve(self, round_: int) -> str:
        """Charge a round of `plan` to everybody in the run, durably; returns the claim with which to release it.

        A round that was reserved and never released is claimed again: it is not charged twice.

        Raises:
            BudgetError: somebody would go over their lifetime budget. Nothing is charged.
            InputError: the round is not the next one, or another plan is in force by now.
        """
        self._now()  # what takes long is done before others have to wait
        with self._step() as (connection, state):
            if state.plan != self.plan.digest:
                raise InputError(f"run {state.name!r} was planned anew meanwhile: it must be opened again to go on.")
            if round_ <= state.done:
                raise InputError(f"round {round_} of run {state.name!r} was released; it is never run again.")
            if round_ != state.done + 1 or round_ > self.plan.rounds:
                raise InputError(
                    f"round {round_} of run {state.name!r} is not the next one, which is {state.done + 1}."
                )
            self._members.places_left()
            if state.claim is not None:
                return append(connection, "retry", run=state.number, round_=round_).hash
            self._members.check_afford(round_)
            return charge_round(connection, state, self.plan, round_)

    def release(self, round_: int, claim: str, result: str) -> None:
        """The round's checkpoint is written, and `result` is its digest: the round is out, and never runs again.

        Raises:
            InputError: another process has claimed or released the round meanwhile; its result is the one that counts.
        """
        with self._step() as (connection, state):
            if state.claim != claim or round_ != state.done + 1:
                raise InputError(f"round {round_} of run {state.name!r} was taken over by another process.")
            append(connection, "release", run=state.number, round_=round_, detail={"result": result})

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
        done, kept = len(results), self.plan
        said: list[str] = []
        if plan is not None:
            check_own(self._members.state, kept, plan)
        with self._step() as (connection, state):
            check_descent(state, kept, results)
            if done > state.done:
                said, entered = recover(connection, state, done, plan or kept)
                kept = entered or kept
            elif done < state.done:
                lost = f"round {state.done}" if done + 1 == state.done else f"rounds {done + 1} to {state.done}"
                append(connection, "rewind", run=state.number, round_=done)
                said = [f"The released result of {lost} is lost: it stays paid for, and is to be paid for again."]
            elif state.claim is not None:
                said = [f"Round {done + 1} was reserved and never released: it runs under the same reservation."]
            for round_ in range(state.done + 1, done + 1):
                detail = {"result": results[round_ - 1]}
                append(connection, "release", run=state.number, round_=round_, detail=detail)
        self._adopt(kept)
        return said

    def replan(
        self,
        acceptable: Callable[[Plan], None] = lambda plan: None,
        *,
        local: Pace | None = None,
    ) -> Plan:
        """Plan the rounds that are left anew, from what everybody has spent here and elsewhere, and put it in force.

        Args:
            acceptable: raises if the run cannot go on by a plan.
            local: learning rates of all rounds of the plan, for planners that ask for them.
        """
        for _ in range(_TRIES):
            with self._database.reading() as connection:
                self._members.follow(connection)
                state, after = self._members.state, self._members.state.reserved
                if after >= self.plan.rounds:
                    raise InputError(f"run {state.name!r} has no rounds left to plan.")
                if state.plan != self.plan.digest:
                    raise InputError(f"run {state.name!r} was planned anew meanwhile: it must be opened again.")
                standings = self._members.standings(connection)
            plan = replanned(self.plan, after, standings, local)  # others go on meanwhile
            acceptable(plan)
            if self._put_in_force(plan, after):
                return plan
        raise InputError(f"run {state.name!r} cannot be planned anew while it or others spend so fast.")

    def _put_in_force(self, plan: Plan, after: int) -> bool:
        """Whether the plan still fits what others have spent meanwhile; if so, it is now in force."""
        check_plan(plan)
        before = self.plan
        self._adopt(plan)
        with self._step() as (connection, state):
            fits = after == state.reserved and state.plan == before.digest
            try:
                self._members.check_afford(plan.rounds)
            except BudgetError:
                fits = False
            if fits:
                enter_plan(connection, state, plan, after)
        if not fits:
            self._adopt(before)
        return fits

    @contextmanager
    def _step(self) -> Iterator[tuple[Connection, RunState]]:
        """A transaction in which nobody else writes, and how far the run has come at its start."""
        with self._database.writing() as connection:
            self._members.follow(connection)
            yield connection, self._members.state

    def _now(self) -> Members:
        """The members' accounts, by now."""
        with self._database.reading() as connection:
            self._members.follow(connection)
        return self._members

    def _adopt(self, plan: Plan) -> None:
        """See the accounts as the accountant of another plan does."""
        with self._database.reading() as connection:
            self._members.follow(connection)
            self._members.adopt(connection, plan)
