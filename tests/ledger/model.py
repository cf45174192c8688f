"""A ledger in plain Python: dictionaries in memory, no database, no log, and privacy by numerical integration.

The state machine compares the real ledger with it after every step. What a rule of the model returns is whether the
real ledger must refuse: True, False, or None where a number is too near to its limit to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from nestegg import Budget, Plan
from nestegg.accounting import ORDERS, filter_order
from tests.oracles import epsilon_from_rdp, gaussian_epsilon

Releases = Counter[tuple[float, float]]  # how often which (q, σ)
NEAR = 1e-6  # of a budget: nearer than this, the model does not say who must be refused


@dataclass
class Life:
    """A client: its budget, its account's rule, and all that was charged to it."""

    budget: Budget
    rule: str
    order: float | None
    charges: Releases = field(default_factory=Counter)
    runs: int = 0
    withdrawn: bool = False

    def epsilon(self, more: Releases | None = None) -> float:
        return epsilon(self.rule, self.order, self.charges + (more or Counter()), self.budget.delta)

    def is_over(self, more: Releases | None = None) -> bool | None:
        """Whether more is spent than the budget, with some releases more."""
        return is_above(self.epsilon(more) / self.budget.epsilon)

    def breaks(self) -> bool | None:
        """Whether the promise is broken. By the rule fixed every accountant is a bound: PLD may find something left."""
        over = self.is_over()
        if not over or self.rule != "fixed":
            return over
        return is_above(pld_epsilon(frozenset(self.charges.items()), self.budget.delta) / self.budget.epsilon, 1e-2)


@dataclass
class Round:
    """A round that is paid: by which (q, σ) of each group."""

    price: list[tuple[float, float]]
    result: str | None = None  # of a round that is only reserved


@dataclass
class Run:
    """A run: its plans, its members in the order of groups, the rounds that count, and results that were lost."""

    plans: list[Plan]
    members: list[str]
    claim: str = ""  # by which the latest reservation may be released
    paid: list[Round] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)

    @property
    def plan(self) -> Plan:
        return self.plans[-1]

    @property
    def results(self) -> list[str]:
        return [one.result for one in self.paid if one.result is not None]

    @property
    def is_open(self) -> bool:
        """Whether a round is reserved and not released."""
        return len(self.paid) > len(self.results)


class Model:
    """All clients and runs."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.runs: dict[str, Run] = {}
        self.forced: set[str] = set()  # clients charged for rounds that the ledger had forgotten, whatever their budget

    def budgets_refused(
        self, given: Mapping[str, Budget], rule: str | None, reason: str | None, new: bool
    ) -> bool | None:
        strangers = [name for name in given if name not in self.lives]
        said: list[bool | None] = [bool(strangers and self.lives and not new)]
        for name, budget in given.items():
            life = self.lives.get(name)
            if life is None:
                continue
            said.append(life.runs > 0 and rule not in (None, life.rule))
            if (life.budget, life.rule, life.order) == (budget, *self._account(name, budget, rule)):
                continue
            said.append(replace(life, budget=budget).breaks())
            said.append(reason is None or life.withdrawn)
        return any_of(said)

    def set_budgets(self, given: Mapping[str, Budget], rule: str | None) -> None:
        for name, budget in given.items():
            chosen, order = self._account(name, budget, rule)
            life = self.lives.setdefault(name, Life(budget, chosen, order))
            life.budget, life.rule, life.order = budget, chosen, order

    def _account(self, name: str, budget: Budget, rule: str | None) -> tuple[str, float | None]:
        """An account's rule and order; once its client is in a run they never change."""
        life = self.lives.get(name)
        if life is not None and life.runs:
            return life.rule, life.order
        chosen = rule or (life.rule if life else "renyi")
        return chosen, filter_order(budget.epsilon, budget.delta) if chosen == "renyi" else None

    def begin_refused(self, run: str, members: Sequence[str], brings: bool) -> bool:
        strangers = any(name not in self.lives for name in members)
        gone = any(self.lives[name].withdrawn for name in members if name in self.lives)
        return run in self.runs or gone or (strangers and not brings)

    def begin(self, run: str, plan: Plan, members: Sequence[str], brought: Budget) -> None:
        self.set_budgets({name: brought for name in members if name not in self.lives}, "renyi")
        for name in members:
            self.lives[name].runs += 1
        self.runs[run] = Run([plan], list(members))

    def reserve_refused(self, name: str, plan: Plan, round_: int) -> bool | None:
        run = self.runs[name]
        if plan.digest != run.plan.digest or round_ != len(run.results) + 1 or round_ > plan.rounds:
            return True
        return False if run.is_open else self.rounds_refused(name, round_)

    def rounds_refused(self, name: str, last: int) -> bool | None:
        """Whether somebody cannot pay the rounds from the first that is not paid to the last."""
        run = self.runs[name]
        said = []
        for member, group in self._groups(run):
            row = run.plan.groups[group]
            rest = slice(len(run.paid), last)
            more = Counter(zip(row.sampling_rate[rest], row.noise_multiplier[rest], strict=True))
            if more and not self.lives[member].withdrawn:
                said.append(self.lives[member].is_over(more))
        return any_of(said)

    def reserve(self, name: str, round_: int, recovered: bool = False) -> None:
        """Charge a round to all that have not withdrawn; one that the ledger had forgotten, to those too."""
        run = self.runs[name]
        if run.is_open:
            return
        price = prices(run.plan, round_)
        run.paid.append(Round(price))
        for member, group in self._groups(run):
            if recovered or not self.lives[member].withdrawn:
                self.lives[member].charges[price[group]] += 1
                self.forced |= {member} if recovered else set()

    def release(self, name: str, result: str) -> None:
        self.runs[name].paid[-1].result = result

    def reconcile_refused(self, name: str, results: Sequence[str]) -> bool:
        run = self.runs[name]
        known = run.results
        differ = any(mine != theirs for mine, theirs in zip(results, known, strict=False))
        older = len(results) < len(known) == run.plan.rounds
        return len(results) > run.plan.rounds or differ or older or bool(run.lost & set(results))

    def reconcile(self, name: str, results: Sequence[str], plan: Plan) -> None:
        run = self.runs[name]
        known = len(run.results)
        if len(results) < known:  # released and lost: paid, and to be paid again
            run.lost |= set(run.results[len(results) :])
            del run.paid[len(results) :]
        elif len(results) > known:
            if run.is_open and run.paid[-1].price != prices(plan, known + 1):
                del run.paid[known:]  # reserved by another plan: that stays paid too
            if plan.digest != run.plan.digest and len(run.paid) < len(results):
                run.plans.append(plan)
            for round_, result in enumerate(results[known:], known + 1):
                self.reserve(name, round_, recovered=True)
                self.release(name, result)

    @staticmethod
    def _groups(run: Run) -> list[tuple[str, int]]:
        """Every member with the number of its group."""
        sizes = [row.group.clients for row in run.plan.groups]
        return list(zip(run.members, np.repeat(range(len(sizes)), sizes).tolist(), strict=True))


def any_of(said: Sequence[bool | None]) -> bool | None:
    """Whether one of several says so, or may."""
    return True if True in said else None if None in said else False


def is_above(share: float, near: float = NEAR) -> bool | None:
    """Whether a share is above 1, or too near to say."""
    return None if abs(share - 1.0) < near else share > 1.0


def prices(plan: Plan, round_: int) -> list[tuple[float, float]]:
    """What a round costs each group."""
    return [(row.sampling_rate[round_ - 1], row.noise_multiplier[round_ - 1]) for row in plan.groups]


def epsilon(rule: str, order: float | None, charges: Releases, delta: float) -> float:
    """ε of releases by the rule of an account; by the rule fixed it is that of RDP."""
    if not charges:
        return 0.0
    if rule == "gaussian":
        return _gaussian(sum(n / sigma**2 for (_, sigma), n in charges.items()) ** 0.5, delta)
    orders = (order or 0.0,) if rule == "renyi" else ORDERS
    total = np.sum([n * curve(q, sigma, orders) for (q, sigma), n in charges.items()], axis=0)
    return epsilon_from_rdp(list(orders), total.tolist(), delta)


_gaussian = cache(gaussian_epsilon)


@cache
def curve(q: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The Rényi curve of the sampled Gaussian by the trapezoid rule, which is near to exact where tails vanish."""
    a = np.array(orders)[:, None]
    z = np.linspace(-12.0 * sigma, a[:, 0] + 12.0 * sigma, 6000, axis=1)
    ratio = np.logaddexp(np.log1p(-q), np.log(q) + (2.0 * z - 1.0) / (2.0 * sigma**2)) if q < 1.0 else None
    loss = (2.0 * z - 1.0) / (2.0 * sigma**2) if ratio is None else ratio
    terms = a * loss - z**2 / (2.0 * sigma**2) - np.log(sigma * np.sqrt(2.0 * np.pi)) + np.log(z[:, 1:2] - z[:, :1])
    return np.asarray(np.logaddexp.reduce(terms, axis=1) / (a[:, 0] - 1.0))


@cache
def pld_epsilon(charges: frozenset[tuple[tuple[float, float], int]], delta: float) -> float:
    """ε by the privacy loss distributions of another library, from its own description of the releases."""
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for (q, sigma), n in charges:
        accountant.compose(PoissonSampledDpEvent(q, GaussianDpEvent(sigma)), n)
    return float(accountant.get_epsilon(delta))
