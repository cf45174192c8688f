"""The rule of an account: may plans depend on what earlier ones released, and what is counted then?

fixed      they may not: all charges are composed by Rényi curves, or by privacy loss distributions
renyi      they may: one Rényi order, fixed when the account is opened, is all that counts
gaussian   they may, at no price for clients whose sampling rate is 1: Σ σ^(−2) counts, exactly at that rate; a
           release at a lower one is charged as if everybody were sampled

The last two are filters: what is spent may decide what comes next, and the whole life still keeps the budget
(Feldman and Zrnic 2021 and Lécuyer 2021 for one order; Smith and Thakurta 2022, Koskela et al. 2023 for σ^(−2)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nestegg.accounting import (
    ORDERS,
    Charge,
    GaussianAccountant,
    GaussianSpending,
    RdpAccountant,
    compose,
    filter_order,
    renyi_account,
)
from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.planning import Budget, GroupPlan, Plan

RULES = ("fixed", "renyi", "gaussian")
SAFE = "renyi"  # of an account that outlives a run


class EverySampled(GaussianAccountant):
    """Accounts for releases at any rate as if everybody were sampled.

    Sampling never costs more: who sees the release at rate 1 can throw it away with probability 1 − q and draw one
    without the client in its place, so the release at rate q is post-processing of it. That holds release by release,
    and so for the filter.
    """

    def spend(self, q: ArrayLike, sigma: ArrayLike) -> GaussianSpending:
        """One release for each row (q, σ)."""
        return super().spend(np.ceil(q), sigma)


@dataclass(frozen=True)
class Rule:
    """How an account is kept, from its first charge to its last.

    Attributes:
        name: fixed, renyi or gaussian.
        order: the Rényi order of the rule renyi.
    """

    name: str = "fixed"
    order: float | None = None

    @property
    def is_adaptive(self) -> bool:
        """Whether plans may depend on what earlier ones released."""
        return self.name != "fixed"

    @property
    def accountant(self) -> Any:
        """The one accountant that counts, or None where the accountant of each plan does."""
        if self.name == "renyi":
            return renyi_account(self.order or 0.0)
        return EverySampled() if self.name == "gaussian" else None

    @property
    def label(self) -> str:
        """What ε is computed by, for a table."""
        if self.name == "renyi":
            return f"Rényi order {self.order:g}"
        return "RDP" if self.name == "fixed" else "Gaussian DP"

    @property
    def sentence(self) -> str:
        """What the account promises."""
        if self.name == "fixed":
            return "plans must depend on no output of earlier ones (rule fixed)"
        return f"plans may depend on earlier results (rule {self.name}: {self.label})"

    def epsilon(self, charges: tuple[Charge, ...], delta: float) -> float:
        """ε of charges, by the accountant that counts; by the rule fixed it is that of RDP.

        For RDP, only the orders around the best one need be computed. They are found on every eighth order. Each order
        bounds ε, so that a best one missed could only overstate it.
        """
        if not charges:
            return 0.0
        accountant = self.accountant
        if accountant is None:
            rough = int(compose(RdpAccountant(ORDERS[::8]), charges).best_order(delta)[0])
            accountant = RdpAccountant(ORDERS[max(8 * rough - 8, 0) : 8 * rough + 9])
        return float(compose(accountant, charges).epsilon(delta)[0])

    def check(self, client: str, plan: Plan) -> None:
        """Refuse a plan that the account cannot be kept by.

        Raises:
            InputError: it was made by PLD, and plans may depend on earlier results.
        """
        if self.is_adaptive and plan.accountant == "pld":
            raise InputError(
                f"client {client!r}: its account lets plans depend on earlier results. A plan by PLD cannot be paid "
                "from it: filters by privacy loss distributions are not valid in general. Plan with accountant = "
                f"{self.name!r}, or open another account with the rule 'fixed'."
            )


FIXED = Rule()


@lru_cache(maxsize=4096)  # many clients have the same budget
def new_rule(name: str, budget: Budget) -> Rule:
    """The rule of an account that is opened with a budget."""
    chosen = one_of("account", name, RULES)
    return Rule(chosen, filter_order(budget.epsilon, budget.delta) if chosen == "renyi" else None)


def rule_for_plan(row: GroupPlan, budget: Budget) -> Rule:
    """The rule of an account that is opened by a first plan: nothing was released yet, so it may be chosen by it.

    The order is that of the budget. Where the plan would not fit by it, it is the order at which the plan costs least.
    """
    if all(q == 1.0 for q in row.sampling_rate):
        return Rule("gaussian")
    rule, charges = new_rule(SAFE, budget), row.charges()
    if rule.epsilon(charges, budget.delta) > budget.epsilon:
        best = compose(RdpAccountant(ORDERS), charges).best_order(budget.delta)
        return Rule(SAFE, ORDERS[int(np.max(best))])
    return rule
