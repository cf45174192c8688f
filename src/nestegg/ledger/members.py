"""The members of a run: what they have spent in all their runs, what they can still afford, and who has withdrawn."""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection

from nestegg.accounting import merged
from nestegg.errors import BudgetError, InputError
from nestegg.ledger.accounts import Account, peer_account
from nestegg.ledger.history import History, RunState
from nestegg.ledger.holders import Peers, find_peers, withdrawn_places
from nestegg.ledger.log import CHARGING, load_stored_plan
from nestegg.ledger.pages import make_pages
from nestegg.planning import Plan, Standing


class Members:
    """The accounts of a run's members, as of the last entry that was read: other processes may charge them meanwhile.

    Attributes:
        plan: by whose accountant the accounts are seen, and whose rounds are to be afforded.
    """

    def __init__(self, connection: Connection, place: str, run: str) -> None:
        self._history = History.of(connection, place)
        state = self._history.run(run)
        self._number = state.number
        self.adopt(connection, load_stored_plan(connection, state.plan, place))

    @property
    def state(self) -> RunState:
        """How far the run had come when the log was last read."""
        return self._history.runs[self._number]

    def follow(self, connection: Connection) -> None:
        """Follow the log: charges are added to the accounts, and whatever changes who is who re-opens them."""
        fresh = False
        for entry in self._history.follow(connection):
            if entry.kind in ("budgets", "run", "withdraw"):
                fresh = True
            elif entry.kind in CHARGING and not fresh:
                for page in self._pages:
                    page.add({group: (q, sigma) for group, q, sigma in entry.rows})
        if fresh:
            self.adopt(connection, self.plan)

    def adopt(self, connection: Connection, plan: Plan) -> None:
        """Open the accounts as the accountant of a plan sees them. Members that have withdrawn pay for nothing."""
        self.plan = plan
        found = find_peers(connection, self._number)
        active = [one for one in found if one.withdrawn is None]
        self._withdrawn = [one for one in found if one.withdrawn is not None]
        self._places = withdrawn_places(connection, self._number) if self._withdrawn else []
        columns = np.array([self._column(one) for one in active], np.intp)
        history = [self._history.charges_of(one.groups) for one in active]
        self._pages = make_pages(plan, active, columns, history)

    def tightest(self) -> dict[str, Account]:
        """The account of every group that has the least left; where all members have withdrawn, one of theirs."""
        chosen: dict[int, tuple[float, Peers]] = {self._column(one): (0.0, one) for one in self._withdrawn}
        for page in self._pages:
            for column, one, spent in zip(page.columns, page.peers, page.epsilons(), strict=True):
                share, before = spent / one.budget.epsilon, chosen.get(int(column))
                if before is None or before[1].withdrawn or share > before[0]:
                    chosen[int(column)] = (share, one)
        names = [row.group.name for row in self.plan.groups]
        return {names[column]: peer_account(self._history, one) for column, (_, one) in sorted(chosen.items())}

    def standings(self, connection: Connection) -> dict[str, list[Standing]]:
        """Where the members of every group stand: in this run, within the budget it began with, and for life."""
        first = load_stored_plan(connection, self.state.plans[0], self._history.place)
        standings: dict[str, list[Standing]] = {}
        for number, row in zip(self.state.groups, first.groups, strict=True):
            here = merged((*row.already_spent, *self._history.charges_of((number,))))
            standings[row.group.name] = [Standing("this run", row.group.budget, here)]
        for page in self._pages:
            for column, one in zip(page.columns, page.peers, strict=True):
                charges = self._history.charges_of(one.groups)
                name, account = self.plan.groups[int(column)].group.name, one.rule.accountant
                standings[name].append(Standing(f"client {one.example}", one.budget, charges, account))
        return standings

    def are_conditional(self) -> bool:
        """Whether an account of the rule fixed, which knows one plan, pays for a second that may depend on results."""
        anew = len(self.state.plans) > 1 and bool(self.state.results or self.state.lost)
        kept = (one for page in self._pages for one in page.peers if not one.rule.is_adaptive)
        return any(anew or one.groups[0] < min(self.state.groups) for one in kept)

    def places_left(self) -> frozenset[int]:
        """The places of the members that have withdrawn and must not be sampled.

        Raises:
            InputError: they are not known.
        """
        if None in self._places:
            raise InputError(
                f"run {self.state.name!r} began under an older nestegg, which did not keep the places of its members: "
                f"it cannot go on without {self._withdrawn[0].example!r}, who has withdrawn."
            )
        return frozenset(place for place in self._places if place is not None)

    def check_afford(self, last: int) -> None:
        """Refuse the plan's rounds from the first that is not paid to `last` if somebody cannot pay them.

        Raises:
            BudgetError: somebody cannot; the sentence says what would fit.
        """
        plan, first = self.plan, self.state.reserved
        if first >= last:
            return
        over = [(share, i, page) for page in self._pages for share, i in page.over(page.after(plan, first, last))]
        if over:
            _, worst, page = max(over, key=lambda one: one[0])
            others = sum(page.peers[i].clients for _, i, page in over) - 1
            raise BudgetError(page.refusal(worst, plan, first, last, others))

    def _column(self, peers: Peers) -> int:
        """Which group of the run somebody is in, by its place in the plan."""
        taken = set(peers.groups)
        return next(i for i, group in enumerate(self.state.groups) if group in taken)
