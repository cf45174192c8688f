"""Pages: the accounts of a run's members, sorted by the accountant that keeps them, and what they can still afford."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import (
    Accountant,
    Array,
    Charge,
    S,
    Spending,
    compose,
    merged,
    smallest_noise,
)
from nestegg.ledger.accounts import is_over
from nestegg.ledger.holders import Peers
from nestegg.planning import GroupPlan, Plan, epsilon_beyond
from nestegg.planning.accounts import ACCOUNTANTS


class Page:
    """Accounts that one accountant keeps.

    Attributes:
        peers: whose they are.
        columns: the group of each in the plan, by index.
        accountant: by which they are kept.
    """

    def __init__(
        self, accountant: Any, peers: Sequence[Peers], columns: NDArray[np.intp], history: Sequence[Sequence[Charge]]
    ) -> None:
        self.accountant, self.peers, self.columns = accountant, peers, columns
        self._spent = _spending(accountant, history)

    def add(self, charged: Mapping[int, tuple[float, float]]) -> None:
        """Charge a round whose (q, σ) are given by group."""
        hit = {i: group for i, peers in enumerate(self.peers) for group in peers.groups if group in charged}
        if not hit:
            return
        price = {group: i for i, group in enumerate(dict.fromkeys(hit.values()))}
        q, sigma = zip(*(charged[group] for group in price), strict=True)
        rows, prices = np.array(list(hit)), np.array([price[group] for group in hit.values()])
        cost = self.accountant.spend(q, sigma).rows(prices)
        self._spent = self._spent.replaced(rows, self._spent.rows(rows) + cost)

    def epsilons(self) -> Array:
        """What each has spent."""
        return _epsilons(self._spent, self.peers)

    def after(self, plan: Plan, first: int, last: int) -> Array:
        """What each will have spent once rounds first + 1 to last are paid."""
        groups, place = np.unique(self.columns, return_inverse=True)
        rows = [plan.groups[i] for i in groups]
        if last - first == 1:
            q, sigma = zip(*((row.sampling_rate[first], row.noise_multiplier[first]) for row in rows), strict=True)
            price = self.accountant.spend(q, sigma)
        else:
            price = _spending(self.accountant, [_rounds(row, first, last) for row in rows])
        return _epsilons(self._spent + price.rows(place), self.peers)

    def over(self, after: Array) -> list[tuple[float, int]]:
        """Those over budget: by which factor, and who, by index."""
        shares = [(after[i] / one.budget.epsilon, i) for i, one in enumerate(self.peers)]
        return [(share, i) for share, i in shares if is_over(after[i], self.peers[i].budget.epsilon)]

    def refusal(self, who: int, plan: Plan, first: int, last: int, others: int) -> str:
        """Say who is over, how much, and what would fit."""
        peers, row = self.peers[who], plan.groups[int(self.columns[who])]
        if last - first == 1:
            what, fits = f"round {last}", self._fitting_noise(who, row, first)
        else:
            rounds = self._fitting_rounds(who, row, first, last)
            what, fits = f"rounds {first + 1} to {last}", f"{rounds} of these {last - first} rounds would fit."
        more = f" and {others} more" if others else ""
        return (
            f"client {peers.example!r} of group {row.group.name!r}{more} would go over budget: epsilon = "
            f"{self.epsilons()[who]:.4g} of {peers.budget.epsilon:g} is spent, and {what} would make it "
            f"{epsilon_beyond(self.after(plan, first, last)[who], peers.budget.epsilon)}. {fits} Nothing was charged."
        )

    def _fitting_rounds(self, who: int, row: GroupPlan, first: int, last: int) -> int:
        """How many of the rounds somebody can afford."""
        peers, spent = self.peers[who], self._spent.rows(np.array([who]))
        low, high = first, last
        while high - low > 1:  # rounds up to `low` fit, up to `high` do not
            middle = (low + high) // 2
            total = _epsilons(spent + _spending(self.accountant, [_rounds(row, first, middle)]), [peers])
            low, high = (low, middle) if is_over(total[0], peers.budget.epsilon) else (middle, high)
        return low - first

    def _fitting_noise(self, who: int, row: GroupPlan, first: int) -> str:
        """How much noise somebody needs in a round."""
        budget, spent = self.peers[who].budget, self._spent.rows(np.array([who]))
        q, sigma = row.sampling_rate[first], row.noise_multiplier[first]
        noise = float(smallest_noise(self.accountant, q, 1, budget.epsilon, budget.delta, spent)[0])
        if not np.isfinite(noise):
            return "No noise would be enough."
        return f"It has noise {sigma:.4g} at rate {q:g}; noise of {noise:.4g} would fit."


def make_pages(
    plan: Plan, peers: Sequence[Peers], columns: NDArray[np.intp], history: Sequence[tuple[Charge, ...]]
) -> list[Page]:
    """Sort accounts by their rules: adaptive ones have an accountant of their own, fixed ones that of the plan."""
    pages = []
    for rule in dict.fromkeys(one.rule for one in peers):
        rows = [i for i, one in enumerate(peers) if one.rule == rule]
        own = [history[i] for i in rows]
        accountant = rule.accountant or _accountant_of(plan, own)
        pages.append(Page(accountant, [peers[i] for i in rows], columns[rows], own))
    return pages


def _accountant_of(plan: Plan, history: Sequence[tuple[Charge, ...]]) -> Any:
    """The plan's accountant, where all that was charged before can be seen by it."""
    charges = [charge for row in plan.groups for charge in row.charges()] + [c for one in history for c in one]
    return ACCOUNTANTS[plan.accountant].sees(plan, charges)


def _rounds(row: GroupPlan, first: int, last: int) -> tuple[Charge, ...]:
    pairs = zip(row.sampling_rate[first:last], row.noise_multiplier[first:last], strict=True)
    return merged(Charge(*pair) for pair in pairs)


def _spending(accountant: Accountant[S], charges: Sequence[Sequence[Charge]]) -> S:
    """What is spent by each of several lists of charges: a row a list."""
    total = accountant.spend(np.zeros(max(len(charges), 1)), 1.0)  # nobody has spent anything
    for row, charged in enumerate(charges):
        if charged:
            total = total.replaced(np.array([row]), compose(accountant, charged))
    return total


def _epsilons(spent: Spending, peers: Sequence[Peers]) -> Array:
    """Every peers' ε, each at their own δ."""
    result = np.zeros(len(peers))
    deltas = np.array([one.budget.delta for one in peers])
    for delta in np.unique(deltas):
        rows = np.flatnonzero(deltas == delta)
        result[rows] = spent.rows(rows).epsilon(float(delta))
    return result
