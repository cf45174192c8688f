"""Who is in a run, what they have spent in all their runs, and what they can still afford."""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection, select

from nestegg.accounting import merged
from nestegg.errors import BudgetError, InputError
from nestegg.ledger.accounts import Account, peer_account
from nestegg.ledger.database import Database
from nestegg.ledger.history import History, RunState
from nestegg.ledger.log import CHARGING
from nestegg.ledger.pages import make_pages
from nestegg.ledger.peers import Peers, find_peers
from nestegg.ledger.plans import load_stored_plan
from nestegg.ledger.tables import groups, members, withdrawals
from nestegg.planning import Plan, Standing

CONDITION = (
    "These accounts are of the rule fixed: this holds only if the plan depends on no result that was released before."
)


class RunAccounts:
    """The accounts of a run's members. Other processes may charge the same clients meanwhile: the log tells.

    Attributes:
        plan: the plan that was in force when the books were opened, or that was put in force by them.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        with database.reading() as connection:
            self._history = History.of(connection, database.place)
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
        """The tightest account of every group; of those whose members have all withdrawn, one of theirs."""
        self._catch_up()
        chosen: dict[int, tuple[float, Peers]] = {self._column(one): (0.0, one) for one in self._withdrawn}
        for page in self._pages:
            for column, one, spent in zip(page.columns, page.peers, page.epsilons(), strict=True):
                share, before = spent / one.budget.epsilon, chosen.get(int(column))
                if before is None or before[1].withdrawn or share > before[0]:
                    chosen[int(column)] = (share, one)
        names = [row.group.name for row in self.plan.groups]
        return {names[column]: peer_account(self._history, one) for column, (_, one) in sorted(chosen.items())}

    def conditions(self) -> list[str]:
        """What must be true for the members' budgets to hold, and no ledger can see, in sentences.

        An account of the rule fixed knows one plan. A second run, or a plan made anew after a release, may depend on
        what was seen meanwhile.
        """
        self._catch_up()
        anew = len(self._state.plans) > 1 and bool(self._state.results or self._state.lost)
        kept = (one for page in self._pages for one in page.peers if not one.rule.is_adaptive)
        return [CONDITION] if any(anew or one.groups[0] < min(self._state.groups) for one in kept) else []

    def check_rest(self, last: int | None = None) -> None:
        """Whether everybody can afford the rounds that are left, so that a run does not stop half-way.

        Args:
            last: the last of them; by default that of the plan.

        Raises:
            BudgetError: somebody cannot.
            InputError: somebody has withdrawn, and the run cannot go on without.
        """
        self._catch_up()
        if self._state.done < self.plan.rounds:
            self._check_places()
        self._afford_rest(self.plan, last)

    def withdrawn(self) -> frozenset[int]:
        """The members that have withdrawn, by their places among all members, from 0: nobody may sample them.

        It is to be asked after `reserve`, for every round. Whoever withdraws later has paid for that round; whoever
        withdrew before has not, and is told of here.

        Raises:
            InputError: no round is reserved, or the run is of a ledger of version 1, which kept no places.
        """
        self._catch_up()
        if self._state.claim is None:
            raise InputError(f"run {self._state.name!r} has reserved no round: who has withdrawn is asked after that.")
        self._check_places()
        return frozenset(place for place in self._places if place is not None)

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
        for page in self._pages:
            for column, one in zip(page.columns, page.peers, strict=True):
                charges = self._history.charges_of(one.groups)
                name, account = self.plan.groups[int(column)].group.name, one.rule.accountant
                standings[name].append(Standing(f"client {one.example}", one.budget, charges, account))
        return standings

    def _open(self, connection: Connection) -> None:
        """Build the accounts from the whole history. Those who have withdrawn pay for nothing any more."""
        found = find_peers(connection, self._number)
        active = [one for one in found if one.withdrawn is None]
        self._withdrawn = [one for one in found if one.withdrawn is not None]
        self._places = _places(connection, self._number) if self._withdrawn else []
        columns = np.array([self._column(one) for one in active], np.intp)
        history = [self._history.charges_of(one.groups) for one in active]
        self._pages = make_pages(self.plan, active, columns, history)

    def _column(self, peers: Peers) -> int:
        """Which group of the run somebody is in, by its place in the plan."""
        taken = set(peers.groups)
        return next(i for i, group in enumerate(self._state.groups) if group in taken)

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
            if entry.kind in ("budgets", "run", "withdraw"):
                fresh = True
            elif entry.kind in CHARGING and not fresh:
                for page in self._pages:
                    page.add({group: (q, sigma) for group, q, sigma in entry.rows})
        if fresh:
            self._open(connection)

    def _check_places(self) -> None:
        """Who has withdrawn must not be sampled, so it must be known which members they are."""
        if None in self._places:
            raise InputError(
                f"run {self._state.name!r} began under an older nestegg, which did not keep the places of its members: "
                f"it cannot go on without {self._withdrawn[0].example!r}, who has withdrawn."
            )

    def _afford_rest(self, plan: Plan, last: int | None = None) -> None:
        last = plan.rounds if last is None else last
        if self._reserved < last:
            self._afford(plan, self._reserved, last)

    def _afford(self, plan: Plan, first: int, last: int) -> None:
        """Whether everybody can pay what rounds first + 1 to last cost a member of each group."""
        over = [(share, i, page) for page in self._pages for share, i in page.over(page.after(plan, first, last))]
        if over:
            _, worst, page = max(over, key=lambda one: one[0])
            others = sum(page.peers[i].clients for _, i, page in over) - 1
            raise BudgetError(page.refusal(worst, plan, first, last, others))


def _places(connection: Connection, run: int) -> list[int | None]:
    """The places of a run's members that have withdrawn; None where they were not kept."""
    query = select(members.c.place).join(withdrawals, members.c.client == withdrawals.c.client).join(groups)
    return list(connection.execute(query.where(groups.c.run == run)).scalars())
