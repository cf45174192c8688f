"""What a ledger says of a run's members, for a statement: counts, days and sums over groups, and no client's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nestegg.accounting import Charge
from nestegg.ledger import Account, Change, Ledger, Part, Rule
from nestegg.planning.certainty import certainty_of
from nestegg.planning.plan import finite_or_none
from nestegg.runs.lines import standing_of


@dataclass(frozen=True)
class Accounts:
    """What a statement takes from a ledger, or nothing; see `Statement` for the last five.

    Attributes:
        began: the day on which the run began.
        done: rounds that were released.
        result: digest of the last one's checkpoint.
        plan: digest of the plan in force.
        earlier_plans: digests of those before.
        paid: all that each group was charged for the run.
    """

    began: str | None = None
    done: int = 0
    result: str | None = None
    plan: str = ""
    earlier_plans: list[str] = field(default_factory=list)
    paid: dict[str, tuple[Charge, ...]] = field(default_factory=dict)
    adaptivity: list[str] = field(default_factory=list)
    ledger: dict[str, Any] | None = None
    other_runs: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    withdrawals: list[dict[str, Any]] = field(default_factory=list)


def accounts_of(ledger: Ledger, run: str, *, lies_here: bool) -> Accounts:
    """Verify a ledger, and gather what it says of a run's members.

    Args:
        ledger: opened to read.
        run: its name.
        lies_here: whether it lies in the run's folder: it is the run's own if it knows of no other run.

    Raises:
        InputError: it does not know the run.
        VerificationError: it does not hold.
    """
    position, _ = ledger.verify()
    books = ledger.books(run)
    state, tightest, members = books.state, books.accounts(), ledger.accounts(run)
    changes = list(ledger.changes_in(run))
    rules = dict.fromkeys(_mode(account.rule) for account in members)
    return Accounts(
        began=state.at[:10],
        done=state.done,
        result=state.results.get(state.done),
        plan=state.plan,
        earlier_plans=state.plans[:-1],
        paid=_paid(members, run),
        adaptivity=[*rules, *books.conditions()],
        ledger={
            "own": lies_here and len(ledger.history().runs) == 1,
            "head": position.hash,
            "entries": position.entry,
            "accounts": [{"group": name, **_standing(run, account)} for name, account in tightest.items()],
        },
        other_runs=_other_runs(ledger, members, run),
        changes=_budgets(changes),
        withdrawals=_withdrawals(changes),
    )


def _mode(rule: Rule) -> str:
    """Whether plans may depend on results, without the order, which differs from account to account."""
    if rule.is_adaptive:
        return f"Plans may depend on earlier results: accounts are kept by a filter (rule {rule.name})."
    return f"{rule.sentence[0].upper()}{rule.sentence[1:]}."


def _paid(members: Sequence[Account], run: str) -> dict[str, tuple[Charge, ...]]:
    """What each group was charged for a run: those who have withdrawn paid for fewer rounds, so the most of all."""
    paid: dict[str, tuple[Charge, ...]] = {}
    for account in members:
        for part in account.parts:
            if part.run == run and part.rounds >= sum(charge.rounds for charge in paid.get(part.group, ())):
                paid[part.group] = part.charges
    return paid


def _standing(run: str, account: Account) -> dict[str, Any]:
    return {
        **standing_of(run, account),
        "delta": account.budget.delta,
        "epsilon_pld": finite_or_none(account.epsilon_pld),
        "right_at_most": certainty_of(account.charges, account.budget.delta),
    }


def _other_runs(ledger: Ledger, members: Sequence[Account], run: str) -> list[dict[str, Any]]:
    """The other runs that members were in, each with the most that it has cost one of them by itself."""
    shared: Counter[str] = Counter()
    most: dict[str, tuple[float, Account, Part]] = {}
    for account in members:
        for part in account.parts:
            if part.run == run:
                continue
            shared[part.run] += account.clients
            epsilon = account.within(part.run)
            if part.run not in most or epsilon > most[part.run][0]:
                most[part.run] = (epsilon, account, part)
    states = {one.name: one for one in ledger.history().runs.values()}
    return [
        {
            "run": name,
            "began": states[name].at[:10],
            "plan": states[name].plan,
            "shared_clients": shared[name],
            "rounds": states[name].done + len(states[name].lost),  # what is lost was released
            "epsilon": epsilon,
            "epsilon_pld": finite_or_none(Account("", 1, account.budget, (part,), account.rule).epsilon_pld),
            "for_release": states[name].note is None,
        }
        for name, (epsilon, account, part) in most.items()
    ]


def _budgets(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Budgets that replaced others: a line for all clients that got the same in one go."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for one in changes:
        if one.kind == "budget":
            numbers = (one.epsilon_before, one.epsilon, one.delta_before, one.delta)
            counts[one.entry, one.day, *numbers, one.author, one.reason] += 1
    names = ("day", "epsilon_before", "epsilon", "delta_before", "delta", "author", "reason")
    return [{**dict(zip(names, key[1:], strict=True)), "clients": count} for key, count in counts.items()]


def _withdrawals(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """How many withdrew on which day; their reasons are theirs."""
    days = Counter(one.day for one in changes if one.kind == "withdrawal")
    return [{"day": day, "clients": count} for day, count in days.items()]
