"""The guard at a client: its own ledger, its own ε, and the terms it has agreed to. It does not trust the server.

account/ledger.db      what this client has spent, in all its runs; `nestegg ledger show` reads it
account/budget.toml    its budget, unless that is given at the start
account/terms/…        the terms of every run it is enrolled in, and its group
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from logging import WARNING
from pathlib import Path

from flwr.supercore import log

from nestegg.accounting import Charge, merged
from nestegg.checks import whole
from nestegg.errors import BudgetError, InputError
from nestegg.files import make_folder, write_atomically
from nestegg.flower.terms import Order, Terms, own_plan
from nestegg.ledger import Account, Ledger, Part, RunBooks
from nestegg.ledger.rules import new_rule, rule_for_plan
from nestegg.planning import Budget, Plan, epsilon_beyond
from nestegg.schema import Section, read_toml

OWN_NAME = "own"  # a client's name in its own ledger
_WITHDRAWN = "this client has withdrawn: it answers nothing any more."


class _BudgetFile(Section):
    epsilon: float
    delta: float
    account: str | None = None


@dataclass(frozen=True)
class OwnAccount:
    """Where a client keeps its account, what it allows to be spent in all, and how that is counted.

    Attributes:
        folder: of the account.
        budget: for life.
        rule: of the account, as in `nestegg ledger budgets set --account`. By default the first plan decides: gaussian
            where all its rates are 1, else renyi. Either way later plans may depend on earlier results.
    """

    folder: Path
    budget: Budget
    rule: str | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> OwnAccount:
        """An account whose budget stands in its folder, in budget.toml."""
        record = read_toml(_BudgetFile, folder / "budget.toml")
        return cls(folder, Budget(record.epsilon, record.delta), record.account)


class Guard:
    """Decides what a client takes part in. Every refusal is an `InputError`, and charges nothing.

    A client is charged for every round of a run up to the last it was asked for, asked or not: that it might have been
    sampled is part of the price. It answers a round at most once.
    """

    def __init__(self, account: OwnAccount) -> None:
        self._account = account
        make_folder("account", account.folder / "terms")

    def enrol(self, terms: Terms, group: str | None = None) -> str:
        """Agree to terms, whole, if the account can pay them; returns the group.

        Args:
            terms: on offer.
            group: where the server wants this client; by default the group with the largest ε that the client has.

        Raises:
            InputError: the account cannot pay, no group fits, or the run has other terms already.
        """
        group = self._group(terms) if group is None else terms.row(group).group.name
        plan = own_plan(terms.plan, group)
        with self._ledger() as ledger:
            self._check_pledge(ledger, terms.run, plan)
            if not ledger.has_run(terms.run):
                ledger.begin(
                    terms.run,
                    plan,
                    [OWN_NAME],
                    unknown=[self._account.budget],
                    rule=self._account.rule,
                    note=terms.note,
                )
            books = ledger.books(terms.run)
            self._check_same(books, plan)
            for sentence in books.conditions():
                log(WARNING, sentence)
            known = self._read(terms.run).get("terms")
            if known is not None and Terms.parse(str(known)).digest != terms.digest:
                raise InputError(f"run {terms.run!r} has other terms, which were agreed on.")
            write_atomically(self._file(terms.run), json.dumps({"terms": terms.text, "group": group}))
        return group

    def admit(self, order: Order) -> None:
        """Pay for a round, durably, before training for it; whatever happens then, it is never paid for again.

        Raises:
            InputError: the order differs from the terms of its run, comes again or too late, or is too dear.
        """
        terms, group = self._agreed(order.run)
        if (
            order.terms != terms.digest
            or order.group != group
            or order != terms.order(group, order.round, order.learnt_norm)
        ):
            raise InputError(f"round {order.round} of run {order.run!r} is not what was agreed on.")
        with self._ledger() as ledger:
            books = ledger.books(order.run)
            self._check_same(books, own_plan(terms.plan, group))
            done = books.state.done  # read once: what another process pays for meanwhile is refused below, not skipped
            if order.round <= done:
                raise InputError(f"round {order.round} of run {order.run!r} was paid for; it is answered once.")
            books.check_rest(order.round)  # all of these rounds, or none
            for round_ in range(done + 1, order.round + 1):
                books.release(round_, books.reserve(round_), f"answered by round {order.round}")

    def leave(self, run: str, after: int) -> None:
        """Leave a run that has ended early, at its owner's word: it is paid up to a round, and never answered again.

        Raises:
            InputError: the run was paid further than that, or the client has withdrawn.
        """
        terms, _ = self._agreed(run)
        with self._opened() as ledger:
            books = ledger.books(run)
            whole("after", after, books.state.done, terms.plan.rounds)
            _settle(books, after)
            write_atomically(self._file(run), json.dumps({"left": True}))

    def withdraw(self, reason: str, author: str | None = None) -> None:
        """Withdraw from everything, for good: no offer and no order is ever answered again.

        Runs that were not left are then paid to their end, as was pledged: how far they have come, a client that is not
        asked does not know. Whoever does should `leave` them first. No budget stands in the way of either.
        """
        with Ledger(self._file_of_ledger) as ledger:
            before = ledger.withdrawn()
            if not before:
                ledger.withdraw(
                    OWN_NAME, reason, author=author
                )  # first: whatever happens then, nothing is answered any more
            for run in ledger.history().runs.values():
                if not self._has_left(run.name):
                    _settle(ledger.books(run.name), ledger.plan(run.plan).rounds)
        if before:  # but what a crash may have left unpaid is paid now
            raise InputError(_WITHDRAWN)

    def _group(self, terms: Terms) -> str:
        """The group with the largest ε that this client's own budget covers."""
        own = self._account.budget
        fits = [row.group for row in terms.plan.groups if row.group.budget.epsilon <= own.epsilon]
        if not fits or terms.plan.delta > own.delta:
            raise InputError(f"epsilon = {own.epsilon:g} at delta = {own.delta:g} is too small for every group.")
        return max(fits, key=lambda group: group.budget.epsilon).name

    def _check_pledge(self, ledger: Ledger, run: str, plan: Plan) -> None:
        """Whether the account can pay a plan, beside every other run to its end.

        Those may go on, and a client that is not sampled does not hear of it: to count only what it was asked for would
        tell, by what it can still afford, how often it was sampled.
        """
        account, pledged, done = self._standing(ledger, plan), [], 0
        for other in ledger.history().runs.values():
            if other.name == run:
                done = other.done
            if self._has_left(other.name) and other.name == run:
                raise InputError(f"run {run!r} was left.")
            if other.name != run and not self._has_left(other.name):
                pledged.append(_rest(other.name, ledger.plan(other.plan), other.done))
        parts = (*account.parts, *pledged, _rest(run, plan, done))
        after = replace(account, parts=parts)
        if after.is_over:
            raise BudgetError(
                f"run {run!r} would make it epsilon = {epsilon_beyond(after.epsilon, account.budget.epsilon)} of "
                f"{account.budget.epsilon:g}, with every other run paid to its end."
            )

    def _standing(self, ledger: Ledger, plan: Plan) -> Account:
        """The client's account as it is, or as a first plan would open it."""
        budget, (row,) = self._account.budget, plan.groups
        known = ledger.accounts()
        rule = new_rule(self._account.rule, budget) if self._account.rule else rule_for_plan(row, budget)
        account = known[0] if known else Account(OWN_NAME, 1, budget, (), rule)
        account.rule.check(OWN_NAME, plan)
        return account

    def _check_same(self, books: RunBooks, plan: Plan) -> None:
        """What is charged must be what was agreed on."""
        if books.plan.digest != plan.digest:
            raise InputError(f"run {books.state.name!r} is in the account with another plan or group.")

    def _has_left(self, run: str) -> bool:
        return "left" in self._read(run)

    def _agreed(self, run: str) -> tuple[Terms, str]:
        content = self._read(run)
        if "terms" not in content:
            raise InputError(f"run {run!r} is not one that this client is enrolled in.")
        return Terms.parse(str(content["terms"])), str(content["group"])

    def _read(self, run: str) -> dict[str, object]:
        try:
            content = json.loads(self._file(run).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(f"the terms of run {run!r} cannot be read: {error}.") from None
        return dict(content)

    def _ledger(self) -> Ledger:
        """The client's own ledger, with the budget that holds now.

        A budget may fall below what open runs were pledged, though not below what is spent: it is the owner's. Rounds
        that no longer fit are refused; leaving and withdrawing are not.

        Raises:
            InputError: it has withdrawn, or the budget cannot be changed to that.
        """
        ledger, asked = self._opened(), self._account
        try:
            known = ledger.accounts()
            if known and (known[0].budget, known[0].rule.name) != (asked.budget, asked.rule or known[0].rule.name):
                ledger.set_budgets({OWN_NAME: asked.budget}, rule=asked.rule, reason="as its node was started")
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _opened(self) -> Ledger:
        """The client's own ledger, with the budget that it has.

        Raises:
            InputError: it has withdrawn.
        """
        ledger = Ledger(self._file_of_ledger)
        if ledger.withdrawn():
            ledger.close()
            raise InputError(_WITHDRAWN)
        return ledger

    @property
    def _file_of_ledger(self) -> Path:
        return self._account.folder / "ledger.db"

    def _file(self, run: str) -> Path:
        """A run's name is the server's choice, and no part of a path."""
        return self._account.folder / "terms" / f"{hashlib.sha256(run.encode()).hexdigest()}.json"


def _settle(books: RunBooks, last: int) -> None:
    """Charge and close all rounds up to one, whatever the budget, also after a withdrawal: they may have been run."""
    state = books.state
    known = [state.results[round_] for round_ in range(1, state.done + 1)]
    books.reconcile([*known, *(f"given up after round {state.done}" for _ in range(state.done, last))])


def _rest(run: str, plan: Plan, done: int) -> Part:
    """What the rounds after some cost the one client of a plan."""
    (row,) = plan.groups
    rounds = zip(row.sampling_rate[done:], row.noise_multiplier[done:], strict=True)
    return Part(run, row.group.name, merged(Charge(q, sigma) for q, sigma in rounds))
