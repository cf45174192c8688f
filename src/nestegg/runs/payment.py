"""How a run pays for its rounds: from the ledger its configuration names, from its folder's own, or not at all."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from nestegg.configuration.description import Description
from nestegg.errors import InputError
from nestegg.ledger import Account, Ledger
from nestegg.planning import ACCOUNTANTS, Plan


class Payment(Protocol):
    """What a run needs of its ledger; see `RunBooks`."""

    @property
    def plan(self) -> Plan:
        """The plan in force."""

    @property
    def plans(self) -> Sequence[str]:
        """Digests of the plans it has had."""

    def stored_plan(self, digest: str) -> Plan:
        """One of the plans it has had."""

    def reconcile(self, results: Sequence[str], plan: Plan | None = None) -> list[str]:
        """Bring ledger and checkpoint into agreement."""

    def conditions(self) -> list[str]:
        """What must be true for budgets to hold, and no ledger can see."""

    def check_rest(self) -> None:
        """Whether everybody can afford the rounds that are left."""

    def reserve(self, round_: int) -> str:
        """Pay for a round."""

    def withdrawn(self) -> frozenset[int]:
        """Who has withdrawn, by place among the members, and must not be sampled; asked after `reserve`."""

    def gone(self) -> Mapping[int, str]:
        """Who has withdrawn by now, place and name: their data may be deleted."""

    def members(self) -> Sequence[str]:
        """The names of all members, by place; asked where somebody has withdrawn."""

    def release(self, round_: int, claim: str, result: str) -> None:
        """The round is out."""

    def accounts(self) -> dict[str, Account]:
        """The tightest account of every group."""


class NoPayment:
    """Training without noise: there is no account that it could be charged to."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.plans = [plan.digest]

    def stored_plan(self, digest: str) -> Plan:
        """It has had one only."""
        return self.plan

    def reconcile(self, results: Sequence[str], plan: Plan | None = None) -> list[str]:
        """There is no ledger to disagree."""
        return []

    def conditions(self) -> list[str]:
        """Nothing is promised."""
        return []

    def check_rest(self) -> None:
        """Nothing is promised."""

    def reserve(self, round_: int) -> str:
        """Nothing is charged."""
        return ""

    def withdrawn(self) -> frozenset[int]:
        """There is no ledger to withdraw from."""
        return frozenset()

    def gone(self) -> Mapping[int, str]:
        """There is no ledger to withdraw from."""
        return {}

    def members(self) -> Sequence[str]:
        """There is no ledger that knows them."""
        return ()

    def release(self, round_: int, claim: str, result: str) -> None:
        """Nothing is recorded."""

    def accounts(self) -> dict[str, Account]:
        """There are none."""
        return {}


def new_run_name(folder: Path) -> str:
    """A name for a run in a ledger: that of its folder, told apart from others of the same name."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name)
    return f"{readable}-{secrets.token_hex(4)}"


def check_ledger(run: Description, plan: Plan) -> list[str]:
    """Refuse a ledger that cannot be used, or should not be, before anything is written; return what to say of it."""
    if run.ledger is None:
        return []
    if not plan.is_private:
        raise InputError(f"privacy.method = {plan.method!r} adds no noise: no budget of the ledger could pay for it.")
    names = run.members()[0]
    with Ledger(run.ledger) as ledger:
        new = ledger.check(plan, names)
        budgets = (
            f"The ledger {ledger.place} does not know {new} of {len(names)} clients: this run's budgets become theirs, "
            "and stay theirs if it is refused."
        )
        return [budgets] if new else []


def own_rule(plan: Plan) -> str:
    """The rule of accounts in a run's own ledger: it holds one plan, which depends on no result."""
    return ACCOUNTANTS[plan.accountant].rule


@contextmanager
def paying(run: Description, folder: Path, plan: Plan) -> Iterator[Payment]:
    """The books of a run, which begins here if its ledger does not know it."""
    if not plan.is_private:
        yield NoPayment(plan)
        return
    with Ledger(run.ledger_in(folder)) as ledger:
        if ledger.has_run(run.run):
            yield ledger.books(run.run)
        else:
            rule = own_rule(plan) if run.ledger is None else None
            names, budgets = run.members()
            yield ledger.begin(run.run, plan, names, unknown=budgets, rule=rule, note=run.note)
