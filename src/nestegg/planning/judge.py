"""The judge: every group's spending recomputed from nothing but the plan's own (q, σ) rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nestegg.accounting import Array, Charge, PldAccountant, RdpAccountant, compose
from nestegg.errors import InputError, VerificationError
from nestegg.planning.budget import check_federation
from nestegg.planning.consistency import check_plan
from nestegg.planning.plan import GroupPlan, Plan

# A plan made with PLD is judged on a grid this much finer; every grid rounds to the pessimistic side.
FINER = 0.2


def epsilon_by_pld(row: GroupPlan, refine: float = 1.0) -> float:
    """ε of one client of the group after all rounds, by privacy loss distributions; infinite without noise."""
    charges = row.charges()
    if any(charge.noise_multiplier == 0.0 and charge.sampling_rate > 0.0 for charge in charges):
        return float("inf")
    return float(compose(pld_accountant(charges, refine), charges).epsilon(row.group.budget.delta)[0])


def pld_accountant(charges: Sequence[Charge], refine: float = 1.0) -> PldAccountant:
    """An accountant whose grid suits these charges, or is finer than that."""
    rates, noises, _ = np.array(charges).T
    return PldAccountant(PldAccountant.for_releases(rates, noises).interval * refine)


def judged(plan: Plan) -> Plan:
    """The plan with every group's final ε by PLD filled in."""
    return replace(plan, groups=tuple(replace(row, epsilon_spent_pld=epsilon_by_pld(row)) for row in plan.groups))


def verify(plan: Plan) -> tuple[float, ...]:
    """Check that a plan keeps its promises; independent of the planner that made it.

    PLD judges a plan made with RDP; one made with PLD is judged by PLD anew, on a finer grid.

    Returns:
        Every group's ε after all rounds, as the judge sees it.

    Raises:
        VerificationError: somebody is over budget, or stated numbers do not follow from the rows.
    """
    if plan.method == "fedavg" or any(0.0 in row.noise_multiplier for row in plan.groups):
        raise VerificationError("everybody is over budget: without noise in every round, spending has no bound.")
    try:
        check_federation([row.group for row in plan.groups], plan.rounds if plan.groups else 1, plan.spending_rate)
        check_plan(plan)
    except InputError as error:
        raise VerificationError(str(error)) from None
    return tuple(_verify_group(plan, row) for row in plan.groups)


def _verify_group(plan: Plan, row: GroupPlan) -> float:
    name, budget = f"group {row.group.name!r}", row.group.budget.epsilon
    judge = epsilon_by_pld(row, FINER if plan.accountant == "pld" else 1.0)
    if judge > budget:
        raise VerificationError(f"{name} is over budget: it spends epsilon = {judge:.6g} of {budget:.6g}.")
    if row.epsilon_spent_pld is not None:
        _expect(f"{name}: epsilon_spent_pld", row.epsilon_spent_pld, judge, rtol=1e-3)
    _expect(f"{name}: sampling_rate", row.sampling_rate, _rates(plan, row))
    own = epsilons(plan, row)
    _expect(f"{name}: epsilon_spent", row.epsilon_spent, own, rtol=1e-6 if plan.accountant == "rdp" else 1e-3)
    if plan.accountant == "rdp" and own.max() > budget:
        raise VerificationError(f"{name} is over budget by the plan's own accountant: {own.max():.9g} of {budget:.9g}.")
    return judge


def _rates(plan: Plan, row: GroupPlan) -> Array:
    """q_n before the transition, q from then on."""
    rounds = np.arange(1, plan.rounds + 1)
    return np.where(
        rounds < (row.group.transition or 1), row.group.saving_rate or plan.spending_rate, plan.spending_rate
    )


def epsilons(plan: Plan, row: GroupPlan) -> Array:
    """ε after every round by the plan's own accountant: RDP on the plan's grid of orders, or PLD."""
    pairs = np.array([row.sampling_rate, row.noise_multiplier])
    if plan.accountant == "rdp":
        accountant = RdpAccountant(plan.orders)
        before = compose(accountant, row.already_spent)
        distinct, index = np.unique(pairs, axis=1, return_inverse=True)
        curves = accountant.spend(*distinct).values[index.ravel()]
        return replace(before, values=before.values + np.cumsum(curves, axis=0)).epsilon(plan.delta)
    judge = pld_accountant(row.charges())
    spent = compose(judge, row.already_spent)
    epsilons = np.empty(plan.rounds)
    for t in range(plan.rounds):
        if t == 0 or pairs[0, t] != pairs[0, t - 1] or pairs[1, t] != pairs[1, t - 1]:
            release = judge.spend(*pairs[:, t])
        spent = spent + release
        epsilons[t] = spent.epsilon(plan.delta)[0]
    return epsilons


def _expect(what: str, stated: object, actual: object, rtol: float = 1e-9) -> None:
    given, true = np.asarray(stated, np.float64), np.asarray(actual, np.float64)
    if given.shape != true.shape or not np.allclose(given, true, rtol=rtol, atol=0.0):
        raise VerificationError(f"{what} does not follow from the plan's rows.")
