"""All there is to say of every accountant, in one place: a name in files, a value in computations.

Another one is a file in `accounting/` and an entry here. The judge asks PLD and RDP of whatever a plan was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestegg.accounting import (
    ORDERS,
    SMALLEST_DELTA,
    Accountant,
    Charge,
    GaussianAccountant,
    PldAccountant,
    RdpAccountant,
    filter_order,
    first_guess,
    renyi_account,
)
from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.planning.budget import Budget, Group

if TYPE_CHECKING:
    from nestegg.planning.plan import GroupPlan, Plan

# A plan made with PLD is judged on a grid this much finer; every grid rounds to the pessimistic side.
FINER = 0.2


@dataclass(frozen=True)
class Accounting:
    """What is to be known of an accountant by name.

    Attributes:
        label: for people.
        plans: returns the accountant of each group that is to be planned, from groups, rounds and spending rate.
        states: returns the accountant by which a plan states the spending of one of its groups.
        sees: returns an accountant for all that was charged to clients of a plan, in it and before it.
        refuses: raises where it cannot account for groups and a spending rate; also told whether it was asked for by
            name.
        orders: of Rényi that its plans name, and how many these may be.
        again: returns what a re-plan of a plan is to be made with, from all that was charged before it.
        stated_to: how exactly numbers of a plan follow from its rows.
        is_final: whether nobody may be over budget by its own numbers, too.
        rule: of accounts in the ledger of a run by itself.
    """

    label: str
    plans: Callable[[Sequence[Group], int, float], list[Accountant[Any]]]
    states: Callable[[Plan, GroupPlan], Accountant[Any]]
    sees: Callable[[Plan, Sequence[Charge]], Accountant[Any]]
    refuses: Callable[[Sequence[Group], float, bool], None] = lambda groups, spending_rate, by_name: None
    orders: tuple[float, ...] = ()
    order_counts: tuple[float, float] = (0, np.inf)
    again: Callable[[Plan, Sequence[Charge]], str | Accountant[Any]] = lambda plan, charges: plan.accountant
    stated_to: float = 1e-6
    is_final: bool = True
    rule: str = "fixed"


def accounting_of(accountant: str | Accountant[Any]) -> Accounting:
    """Return what is to be known of an accountant, given by name or as a value."""
    return ACCOUNTANTS[one_of("accountant", str(getattr(accountant, "name", accountant)), ACCOUNTANTS)]


def planning_accountants(
    accountant: str | Accountant[Any], groups: Sequence[Group], rounds: int, spending_rate: float
) -> list[Accountant[Any]]:
    """Return the accountant of every group that is to be planned, if it can account for them."""
    known, by_name = accounting_of(accountant), isinstance(accountant, str)
    known.refuses(groups, spending_rate, by_name)
    return known.plans(groups, rounds, spending_rate) if isinstance(accountant, str) else [accountant] * len(groups)


def row_accountant(plan: Plan, row: GroupPlan) -> Accountant[Any]:
    """Return the accountant by which a plan states the spending of one of its groups."""
    return ACCOUNTANTS[plan.accountant].states(plan, row)


def check_orders(field: str, accountant: str, orders: Sequence[float]) -> None:
    """Refuse orders that are none, or are not those of the accountant."""
    grid, (least, most) = np.array(orders, np.float64), ACCOUNTANTS[accountant].order_counts
    rising = np.all(np.isfinite(grid) & (grid > 1.0)) and np.all(np.diff(grid) > 0.0)
    if not rising or not least <= grid.size <= most:
        raise InputError(f"{field} must be numbers above 1 that rise, for accountant = 'renyi' one at most.")


def budget_account(name: str, budget: Budget) -> Accountant[Any]:
    """Return the account of a budget that holds whatever plans follow from: gaussian or renyi.

    >>> budget_account("renyi", Budget(10.0)).orders
    (3.4,)
    """
    return GaussianAccountant() if name == "gaussian" else renyi_account(filter_order(budget.epsilon, budget.delta))


def pld_accountant(charges: Sequence[Charge], refine: float = 1.0) -> PldAccountant:
    """Return an accountant whose grid suits these charges, or is finer than that."""
    rates, noises, _ = np.array(charges).T
    return PldAccountant(PldAccountant.for_releases(rates, noises).interval * refine)


def _pld_for(groups: Sequence[Group], rounds: int, spending_rate: float) -> list[Accountant[Any]]:
    """A grid of losses that suits the weakest release the plan can hold: the slowest saver with the most noise."""
    strictest = min(group.budget.epsilon for group in groups)
    noise = first_guess(spending_rate, rounds, strictest, groups[0].budget.delta)
    slowest = min(group.saving_rate or spending_rate for group in groups)
    releases = [(slowest, float(noise)), *(charge[:2] for group in groups for charge in group.already_spent)]
    rates, noises = np.array(releases).T
    return [PldAccountant.for_releases(rates, noises)] * len(groups)


def _refuse_tiny_delta(groups: Sequence[Group], spending_rate: float, by_name: bool) -> None:
    if (delta := groups[0].budget.delta) < SMALLEST_DELTA:
        raise InputError(
            f"delta = {delta:g} must be at least {SMALLEST_DELTA:g} with accountant = 'pld', whose arithmetic is not "
            "exact enough below."
        )


def _refuse_sampling(groups: Sequence[Group], spending_rate: float, by_name: bool) -> None:
    rates = [("spending_rate", spending_rate)]
    rates += [(f"group {group.name!r}: saving_rate", group.saving_rate or 1.0) for group in groups]
    for field, rate in rates:
        if by_name and rate != 1.0:  # one that is given may know what to do with sampling
            raise InputError(
                f"{field} = {rate!r} must be 1 with accountant = 'gaussian', which knows no amplification by sampling."
            )


def _renyi_of(plan: Plan, row: GroupPlan) -> Accountant[Any]:
    return renyi_account(*plan.orders) if plan.orders else budget_account("renyi", row.group.budget)


def _gaussian_or_rdp(charges: Sequence[Charge]) -> str:
    """The Gaussian formula is no bound for releases to a sample of clients; Rényi curves are one for all releases."""
    return "gaussian" if all(charge.sampling_rate == 1.0 for charge in charges) else "rdp"


ACCOUNTANTS: dict[str, Accounting] = {
    "rdp": Accounting(
        label="RDP",
        plans=lambda groups, rounds, spending_rate: [RdpAccountant()] * len(groups),
        states=lambda plan, row: RdpAccountant(plan.orders),
        sees=lambda plan, charges: RdpAccountant(plan.orders),
        orders=ORDERS,
        order_counts=(1, np.inf),
    ),
    "pld": Accounting(
        label="PLD",
        plans=_pld_for,
        states=lambda plan, row: pld_accountant(row.charges()),
        sees=lambda plan, charges: pld_accountant(charges, FINER),
        refuses=_refuse_tiny_delta,
        stated_to=1e-3,
        is_final=False,
    ),
    "gaussian": Accounting(
        label="the Gaussian formula",
        plans=lambda groups, rounds, spending_rate: [GaussianAccountant() for _ in groups],
        states=lambda plan, row: GaussianAccountant(),
        sees=lambda plan, charges: GaussianAccountant() if _gaussian_or_rdp(charges) == "gaussian" else RdpAccountant(),
        refuses=_refuse_sampling,
        again=lambda plan, charges: _gaussian_or_rdp(charges),
        rule="gaussian",
    ),
    "renyi": Accounting(
        label="one Rényi order",
        plans=lambda groups, rounds, spending_rate: [budget_account("renyi", group.budget) for group in groups],
        states=_renyi_of,
        sees=lambda plan, charges: RdpAccountant(),
        order_counts=(0, 1),
        again=lambda plan, charges: renyi_account(*plan.orders) if plan.orders else plan.accountant,
    ),
}
LABELS = {name: accounting.label for name, accounting in ACCOUNTANTS.items()}
