"""What an attacker gains who knows more than a plan assumes: who was sampled, or some clients' shares of the noise.

Others' budgets are no such knowledge. A client's rates and noise multipliers follow from its own budget; those of
others enter its clip norm alone, and with it nothing that is charged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nestegg.accounting import Charge, GaussianSpending, compose, gaussian_allowance
from nestegg.checks import whole
from nestegg.planning.accounts import row_accountant
from nestegg.planning.certainty import certainty
from nestegg.planning.plan import GroupPlan, Plan, finite_or_none


@dataclass(frozen=True)
class Exposure:
    """What the clients of one group are exposed to, once all rounds are done.

    Attributes:
        row: their part of the plan.
        epsilon: ε by the plan's accountant.
        sampled: ε against an attacker who knows who took part, of a client that was sampled in every round.
        colluding: ε against so many clients who take their own shares out of the noise.
    """

    row: GroupPlan
    epsilon: float
    sampled: float
    colluding: dict[int, float]

    @cached_property
    def advantage(self) -> float:
        """How much better than a coin anybody can tell whether a client's data is there, from 0 to 1."""
        return 2.0 * certainty(self.row, by_pld=True) - 1.0

    @property
    def excess(self) -> float:
        """By how much `advantage` is above that of one Gaussian release that uses up the same budget (ε, δ)."""
        budget = self.row.group.budget
        plain = GaussianSpending(gaussian_allowance(budget.epsilon, budget.delta))
        return self.advantage - float(plain.delta(0.0)[0])

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON-ready values; what is infinite is null."""
        return {
            "name": self.row.group.name,
            "epsilon": finite_or_none(self.epsilon),
            "epsilon_sampled": finite_or_none(self.sampled),
            "epsilon_colluding": {str(k): finite_or_none(epsilon) for k, epsilon in self.colluding.items()},
            "advantage": self.advantage,
            "excess_advantage": self.excess,
        }


def exposures(plan: Plan, colluders: int = 0) -> tuple[Exposure, ...]:
    """Return what every group is exposed to; without noise there is nothing to say.

    Args:
        plan: whose promise is against attackers who do not know who was sampled, nor any share of the noise.
        colluders: clients against whose knowledge the shares of a run are raised, which a plan does not know.

    >>> from nestegg import Budget, Group, plan
    >>> (one,) = exposures(plan([Group("all", 10, Budget(8.0))], 20, method="idp-fedavg", spending_rate=0.5))
    >>> round(one.epsilon, 2), round(one.sampled, 2), {k: round(epsilon, 2) for k, epsilon in one.colluding.items()}
    (8.0, 14.54, {1: 8.6})
    """
    colluders = whole("colluders", colluders, 0, plan.clients - 1)
    if not plan.is_private:
        return ()
    known = [k for k in dict.fromkeys((1, colluders)) if 0 < k < plan.clients]
    return tuple(
        Exposure(
            row=row,
            epsilon=row.epsilon_spent[-1],
            sampled=_sampled(row),
            colluding={k: _colluding(plan, row, k, colluders) for k in known},
        )
        for row in plan.groups
    )


def epsilon_text(epsilon: float) -> str:
    """Write ε as people read it: what is beyond all use says so.

    >>> epsilon_text(9.2887), epsilon_text(31415.9), epsilon_text(float("inf"))
    ('9.289', '> 10,000', '∞')
    """
    return "∞" if np.isinf(epsilon) else "> 10,000" if epsilon > 1e4 else f"{epsilon:.3f}"


def epsilon_beyond(epsilon: float, budget: float) -> str:
    """Write an ε that is over a budget with four digits, or as many as show that it is.

    >>> epsilon_beyond(15.457, 12.0), epsilon_beyond(6.00031, 6.0)
    ('15.46', '6.0003')
    """
    written = (f"{epsilon:.{digits}g}" for digits in range(4, 17))
    return next((text for text in written if float(text) > budget), repr(epsilon))


def _sampled(row: GroupPlan) -> float:
    """Every charge at rate 1, in closed form."""
    squares = sum(count / sigma**2 for q, sigma, count in row.charges() if q > 0.0)
    return float(GaussianSpending(np.array([squares])).epsilon(row.group.budget.delta)[0])


def _colluding(plan: Plan, row: GroupPlan, known: int, colluders: int) -> float:
    """Of N shares, each raised by N/(N − colluders) in variance, those of `known` clients are no noise to them."""
    left = min(float(np.sqrt((plan.clients - known) / (plan.clients - colluders))), 1.0)
    if left == 1.0:
        return row.epsilon_spent[-1]
    before = tuple(Charge(q, left * sigma, count) for q, sigma, count in row.already_spent)
    weaker = replace(
        row,
        group=replace(row.group, already_spent=before),
        noise_multiplier=tuple(left * sigma for sigma in row.noise_multiplier),
    )
    spent = compose(row_accountant(plan, weaker), weaker.charges())
    return float(spent.epsilon(row.group.budget.delta)[0])
