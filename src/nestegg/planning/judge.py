"""The judge: every group's spending recomputed from nothing but the plan's own (q, σ) rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nestegg.accounting import ORDERS, SMALLEST_DELTA, Array, RdpAccountant, compose
from nestegg.errors import InputError, VerificationError
from nestegg.planning.accounts import ACCOUNTANTS, FINER, row_accountant
from nestegg.planning.consistency import check_plan
from nestegg.planning.losses import WIDTH, loss
from nestegg.planning.plan import GroupPlan, Plan
from nestegg.planning.remembered import Remembered

# How well two evaluations of the Gaussian closed form agree at the weakest of releases; ours is on the safe side.
_CLOSED_FORM = 1e-8
_known = Remembered()


def epsilon_by_pld(row: GroupPlan, width: float = WIDTH, refine: float = 1.0) -> float:
    """ε of one client of the group after all rounds, by privacy loss distributions; infinite without noise.

    It is infinite too at a δ below `SMALLEST_DELTA`, at which distributions cannot vouch for anything. Where rounds
    differ in many ways, it may be a little above what `width` = 0 gives, never below; see `losses`.
    """
    charges = row.charges()
    if row.group.budget.delta < SMALLEST_DELTA:
        return float("inf")
    if any(charge.noise_multiplier == 0.0 and charge.sampling_rate > 0.0 for charge in charges):
        return float("inf")
    return loss(charges, row.group.budget.delta, width, refine).epsilon


def judged(plan: Plan, on_group: Callable[[GroupPlan], None] = lambda row: None) -> Plan:
    """The plan with every group's final ε by PLD filled in, at a δ at which PLD can be asked; each is announced."""
    if plan.delta < SMALLEST_DELTA:
        return replace(plan, groups=tuple(replace(row, epsilon_spent_pld=None) for row in plan.groups))
    rows = []
    for row in plan.groups:
        on_group(row)
        rows.append(replace(row, epsilon_spent_pld=epsilon_by_pld(row)))
    made = replace(plan, groups=tuple(rows))
    if plan in _known:
        _known.note(made)
    return made


class Verdict(NamedTuple):
    """A group's ε after all rounds, and the name of the accountant who vouches for it."""

    epsilon: float
    judge: str


def verify(plan: Plan) -> tuple[Verdict, ...]:
    """Check that a plan keeps its promises; independent of the planner that made it.

    PLD judges a plan made with Rényi curves; one made with PLD is judged by PLD anew, on a finer grid. Where PLD does
    not vouch, for it takes off from δ what its arithmetic can lose, Rényi curves may: one valid accountant is enough.
    They are recomputed from the rows at our own orders, never at those that a plan names. A plan made with the Gaussian
    accountant has no noise to spare, so it is judged by the same closed form as somebody else wrote it.

    Returns:
        Every group's verdict.

    Raises:
        VerificationError: somebody is over budget, or stated numbers do not follow from the rows.
    """
    if any(0.0 in row.noise_multiplier for row in plan.groups):
        raise VerificationError("everybody is over budget: without noise in every round, spending has no bound.")
    try:
        check_plan(plan)
    except InputError as error:
        raise VerificationError(str(error)) from None
    return tuple(_verify_group(plan, row) for row in plan.groups)


def check_promises(plan: Plan) -> None:
    """Refuse a plan by which somebody would spend more than a budget, or other than the plan states.

    Whoever trains by a plan demands this. A plan that was made or checked in this process is known. Of others, what is
    spent is computed anew by the plan's own accountant, in a fraction of the time that `verify` takes; where that one
    does not vouch, the judge must.

    Raises:
        InputError: the plan does not keep what it promises, or cannot be one; see `check_plan`.

    >>> from dataclasses import replace
    >>> from nestegg import Budget, Group, plan
    >>> made = plan([Group("all", 10, Budget(10.0))], rounds=5)
    >>> check_promises(made)
    >>> check_promises(replace(made, groups=(replace(made.groups[0], epsilon_spent=(1.0,) * 5),)))
    Traceback (most recent call last):
    nestegg.errors.InputError: plan: group 'all': epsilon_spent does not follow from the plan's rows.
    """
    check_plan(plan)
    if plan in _known:
        return
    try:
        for row in plan.groups if plan.is_private else ():
            if not _vouches_itself(plan):
                _within_budget(plan, row)
            _check_stated(plan, row)
    except VerificationError as error:
        raise InputError(f"plan: {error}") from None
    _known.note(plan)


def remember(plan: Plan) -> None:
    """Note that a plan keeps its promises, since it was just computed from budgets."""
    _known.note(plan)


def _vouches_itself(plan: Plan) -> bool:
    """Whether the plan's accountant has the last word, at orders of ours, at which its arithmetic is known to hold."""
    return ACCOUNTANTS[plan.accountant].is_final and {*plan.orders} <= {*ORDERS}


def _verify_group(plan: Plan, row: GroupPlan) -> Verdict:
    verdict = _within_budget(plan, row)
    _check_stated(plan, row)
    return verdict


def _within_budget(plan: Plan, row: GroupPlan) -> Verdict:
    """The judge's verdict, if nobody is over budget by it."""
    verdict, budget = _judge(plan, row), row.group.budget.epsilon
    if not verdict.epsilon <= budget * (1.0 + (_CLOSED_FORM if plan.accountant == "gaussian" else 0.0)):
        raise VerificationError(
            f"group {row.group.name!r} is over budget: it spends epsilon = {verdict.epsilon:.6g} of {budget:.6g}."
        )
    return verdict


def _check_stated(plan: Plan, row: GroupPlan) -> None:
    """Refuse numbers that do not follow from the rows, and spending over budget by the plan's own accountant."""
    name, budget = f"group {row.group.name!r}", row.group.budget.epsilon
    if row.epsilon_spent_pld is not None and plan.delta >= SMALLEST_DELTA:
        # Somebody may have stated it exactly, and rounded it may be above by more than the tolerance.
        rounded = epsilon_by_pld(row)
        by_pld = rounded if np.isclose(row.epsilon_spent_pld, rounded, rtol=1e-3) else epsilon_by_pld(row, width=0.0)
        _expect(f"{name}: epsilon_spent_pld", row.epsilon_spent_pld, by_pld, rtol=1e-3)
    if plan.about.rates != "own":
        _expect(f"{name}: sampling_rate", row.sampling_rate, _rates(plan, row))
    own, known = epsilons(plan, row), ACCOUNTANTS[plan.accountant]
    _expect(f"{name}: epsilon_spent", row.epsilon_spent, own, rtol=known.stated_to)
    if known.is_final and not own.max() <= budget:
        raise VerificationError(f"{name} is over budget by the plan's own accountant: {own.max():.9g} of {budget:.9g}.")


def _judge(plan: Plan, row: GroupPlan) -> Verdict:
    """Who vouches for the group, or else who sees the least spent."""
    charges = row.charges()
    if plan.accountant == "gaussian":
        from dp_accounting.gaussian_mechanism import get_epsilon_gaussian  # slow to import: only for those who need it

        if any(q != 1.0 for q, _, _ in charges):
            return Verdict(float("inf"), "Google's closed form")
        total = sum(count / sigma**2 for _, sigma, count in charges) ** -0.5
        return Verdict(float(get_epsilon_gaussian(total, plan.delta)), "Google's closed form")
    # A plan by PLD has nothing to spare; others are judged exactly only where rounded noise does not vouch for them.
    ways = [(0.0, FINER)] if plan.accountant == "pld" else [(WIDTH, 1.0), (0.0, 1.0)]
    for width, refine in ways:
        by_pld = Verdict(epsilon_by_pld(row, width, refine), "PLD")
        if by_pld.epsilon <= row.group.budget.epsilon:
            return by_pld
    by_rdp = Verdict(float(compose(RdpAccountant(), charges).epsilon(plan.delta)[0]), "RDP")
    return min(by_rdp, by_pld)


def _rates(plan: Plan, row: GroupPlan) -> Array:
    """q_n before the transition, q from then on."""
    rounds = np.arange(1, plan.rounds + 1)
    return np.where(
        rounds < (row.group.transition or 1), row.group.saving_rate or plan.spending_rate, plan.spending_rate
    )


def epsilons(plan: Plan, row: GroupPlan) -> Array:
    """ε after every round by the plan's own accountant."""
    accountant = row_accountant(plan, row)
    pairs = np.array([row.sampling_rate, row.noise_multiplier])
    distinct, index = np.unique(pairs, axis=1, return_inverse=True)
    spent = accountant.spend(*distinct).rows(index.ravel()).running(compose(accountant, row.already_spent))
    return np.asarray(spent.epsilon(plan.delta))


def _expect(what: str, stated: object, actual: object, rtol: float = 1e-9) -> None:
    given, true = np.asarray(stated, np.float64), np.asarray(actual, np.float64)
    if given.shape != true.shape or not np.allclose(given, true, rtol=rtol, atol=0.0):
        raise VerificationError(f"{what} does not follow from the plan's rows.")
