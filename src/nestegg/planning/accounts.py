"""Which accountant a plan's numbers are by: a name in configurations and plan files, a value in computations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nestegg.accounting import (
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
from nestegg.errors import InputError
from nestegg.planning.budget import Budget, Group

if TYPE_CHECKING:
    from nestegg.planning.plan import GroupPlan, Plan


def check_accountant(name: str, groups: Sequence[Group], spending_rate: float) -> None:
    """Refuse an accountant that cannot account for these groups, which have their defaults written out."""
    if name == "pld" and (delta := groups[0].budget.delta) < SMALLEST_DELTA:
        raise InputError(
            f"delta = {delta:g} must be at least {SMALLEST_DELTA:g} with accountant = 'pld', whose arithmetic is not "
            "exact enough below."
        )
    if name == "gaussian":
        rates = [("spending_rate", spending_rate)]
        rates += [(f"group {group.name!r}: saving_rate", group.saving_rate or 1.0) for group in groups]
        for field, rate in rates:
            if rate != 1.0:
                raise InputError(
                    f"{field} = {rate!r} must be 1 with accountant = 'gaussian', which knows no amplification by "
                    "sampling."
                )


def budget_account(name: str, budget: Budget) -> Accountant[Any]:
    """Return the account of a budget that holds whatever plans follow from: gaussian or renyi.

    >>> budget_account("renyi", Budget(10.0)).orders
    (3.4,)
    """
    return GaussianAccountant() if name == "gaussian" else renyi_account(filter_order(budget.epsilon, budget.delta))


def row_accountant(plan: Plan, row: GroupPlan) -> Accountant[Any]:
    """Return the accountant by which a plan states the spending of one of its groups."""
    if plan.accountant == "pld":
        return pld_accountant(row.charges())
    if plan.orders:
        return RdpAccountant(plan.orders, name=plan.accountant)
    return budget_account(plan.accountant, row.group.budget)


def pld_accountant(charges: Sequence[Charge], refine: float = 1.0) -> PldAccountant:
    """An accountant whose grid suits these charges, or is finer than that."""
    rates, noises, _ = np.array(charges).T
    return PldAccountant(PldAccountant.for_releases(rates, noises).interval * refine)


def planning_accountants(
    accountant: str | Accountant[Any],
    groups: Sequence[Group],
    rounds: int,
    spending_rate: float,
) -> list[Accountant[Any]]:
    """Return the accountant of every group that is to be planned."""
    if not isinstance(accountant, str):
        return [accountant] * len(groups)
    if accountant == "rdp":
        return [RdpAccountant()] * len(groups)
    if accountant != "pld":
        return [budget_account(accountant, group.budget) for group in groups]
    # A grid of losses that suits the weakest release the plan can hold: the slowest saver with the most noise.
    strictest = min(group.budget.epsilon for group in groups)
    noise = first_guess(spending_rate, rounds, strictest, groups[0].budget.delta)
    slowest = min(group.saving_rate or spending_rate for group in groups)
    releases = [(slowest, float(noise)), *(charge[:2] for group in groups for charge in group.already_spent)]
    rates, noises = np.array(releases).T
    return [PldAccountant.for_releases(rates, noises)] * len(groups)
