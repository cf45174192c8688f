"""What must hold between a plan's numbers for its noise to be what is charged. Whoever takes a plan checks it."""

from __future__ import annotations

import numpy as np

from nestegg.accounting import MAX_NOISE, MIN_NOISE, Array
from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.planning.accounts import ACCOUNTANTS, check_orders
from nestegg.planning.budget import check_federation
from nestegg.planning.parameters import check_parameters
from nestegg.planning.plan import GroupPlan, Plan, harmonic_mean
from nestegg.planning.planners import COMPOSITIONS
from nestegg.planning.registry import known_method

MAX_CLIP_NORM = 1e12  # beyond, noise would leave the range of single precision
_RTOL = 1e-9


def check_plan(plan: Plan) -> None:
    """Refuse a plan by which a client would face other noise than it is charged for.

    Client n faces σ_n^t in round t because the total noise c σ^t is σ_n^t times its clip norm c_n^t. A plan may be
    made by anybody, so trainers, ledgers, Flower's terms and the judge demand that before they use one.

    Raises:
        InputError: nobody could have made the plan (an unknown method, groups that do not go together, releases before
            it that do not exist), a row has the wrong length, a rate, noise or clip norm out of range, c_n^t σ_n^t is
            not c σ^t, or groups differ in noise although the method gives everybody the same clip norm.

    >>> from nestegg import Budget, Group, plan
    >>> check_plan(plan([Group("all", 10, Budget(10.0))], rounds=5))
    """
    if not plan.groups:
        raise InputError("plan.groups is empty; a plan has at least one group.")
    _check_words(plan)
    for row in plan.groups:
        _check_lengths(plan, row)
        _check_spending(row)
    try:
        check_federation([row.group for row in plan.groups], plan.rounds, plan.spending_rate)
    except InputError as error:
        raise InputError(f"plan: {error}") from None
    rates, noise, norms = (
        np.array([getattr(row, name) for row in plan.groups], np.float64)
        for name in ("sampling_rate", "noise_multiplier", "clip_norm")
    )
    _demand(plan, "sampling_rate", (rates > 0.0) & (rates <= 1.0), "above 0 and at most 1")  # NaN is neither
    if not plan.is_private:
        where = f"where plan.method = {plan.method!r}"
        _demand(plan, "noise_multiplier", noise == 0.0, f"0 {where}")
        _demand(plan, "clip_norm", norms == np.inf, f"infinite {where}")
        if plan.clip_norm != np.inf:
            raise InputError(f"plan.clip_norm = {plan.clip_norm!r} must be infinite {where}.")
        return
    _demand(
        plan,
        "noise_multiplier",
        (noise >= MIN_NOISE) & (noise <= MAX_NOISE),
        f"at least {MIN_NOISE:g} and at most {MAX_NOISE:g}",
    )
    if not 0.0 < plan.clip_norm <= MAX_CLIP_NORM:  # so that with such noise every c_n^t is finite too
        raise InputError(
            f"plan.clip_norm = {plan.clip_norm!r} must be above 0 and at most {MAX_CLIP_NORM:g} where there is noise."
        )
    if plan.about.same_noise:
        same = np.isclose(noise, noise[0], rtol=_RTOL, atol=0.0)
        _demand(plan, "noise_multiplier", same, f"that of all other groups where plan.method = {plan.method!r}")
    _demand(plan, "clip_norm", np.isclose(norms, clip_norms(plan), rtol=_RTOL, atol=0.0), "c σ^t / σ_n^t")


def clip_norms(plan: Plan) -> Array:
    """c_n^t = c σ^t / σ_n^t."""
    noise = np.array([row.noise_multiplier for row in plan.groups])
    return np.asarray(plan.clip_norm * harmonic_mean(plan.groups, noise) / noise)


def _check_words(plan: Plan) -> None:
    has_any = known_method("plan.method", plan.method).has_parameters
    check_parameters("plan", plan.method, plan.parameters, has_any=has_any)
    one_of("plan.composition", plan.composition, COMPOSITIONS)
    one_of("plan.accountant", plan.accountant, ACCOUNTANTS)
    check_orders("plan.orders", plan.accountant, plan.orders)


def _check_spending(row: GroupPlan) -> None:
    """What is said to be spent is a number."""
    where = f"plan: group {row.group.name!r}"
    stated = [("epsilon_spent", epsilon) for epsilon in row.epsilon_spent]
    stated += [] if row.epsilon_spent_pld is None else [("epsilon_spent_pld", row.epsilon_spent_pld)]
    for name, epsilon in stated:
        if not epsilon >= 0.0:  # NaN is neither
            raise InputError(f"{where}: {name} = {epsilon!r} must be at least 0.")


def _check_lengths(plan: Plan, row: GroupPlan) -> None:
    for name in ("sampling_rate", "noise_multiplier", "clip_norm", "epsilon_spent"):
        if not len(getattr(row, name)) == plan.rounds >= 1:
            raise InputError(
                f"plan: group {row.group.name!r}: {name} has {len(getattr(row, name))} values; "
                f"every row must have one for each of the {max(plan.rounds, 1)} rounds."
            )


def _demand(plan: Plan, name: str, holds: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], allowed: str) -> None:
    """The first number that is not as it must be, in a sentence."""
    if not holds.all():
        group, t = (int(i) for i in np.argwhere(~holds)[0])
        row = plan.groups[group]
        value = getattr(row, name)[t]
        raise InputError(f"plan: group {row.group.name!r}, round {t + 1}: {name} = {value!r} must be {allowed}.")
