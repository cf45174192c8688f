"""What must hold between a plan's numbers for its noise to be what is charged. Whoever takes a plan checks it."""

from __future__ import annotations

import numpy as np

from nestegg.accounting import MIN_NOISE, Array
from nestegg.errors import InputError
from nestegg.planning.plan import SAME_NOISE, GroupPlan, Plan, harmonic_mean

_RTOL = 1e-9


def check_plan(plan: Plan) -> None:
    """Refuse a plan by which a client would face other noise than it is charged for.

    Client n faces σ_n^t in round t because the total noise c σ^t is σ_n^t times its clip norm c_n^t. A plan may be
    made by anybody, so trainers, ledgers, Flower's terms and the judge demand that before they use one.

    Raises:
        InputError: a row has the wrong length, a rate, noise or clip norm out of range, c_n^t σ_n^t is not c σ^t, or
            groups differ in noise although the method gives everybody the same clip norm.

    >>> from nestegg import Budget, Group, plan
    >>> check_plan(plan([Group("all", 10, Budget(10.0))], rounds=5))
    """
    if not plan.groups:
        raise InputError("plan.groups is empty; a plan has at least one group.")
    for row in plan.groups:
        _check_lengths(plan, row)
    rates, noise, norms = (
        np.array([getattr(row, name) for row in plan.groups], np.float64)
        for name in ("sampling_rate", "noise_multiplier", "clip_norm")
    )
    _demand(plan, "sampling_rate", (rates > 0.0) & (rates <= 1.0), "above 0 and at most 1")  # NaN is neither
    if plan.method == "fedavg":
        _demand(plan, "noise_multiplier", noise == 0.0, "0 where plan.method = 'fedavg'")
        _demand(plan, "clip_norm", norms == np.inf, "infinite where plan.method = 'fedavg'")
        return
    _demand(plan, "noise_multiplier", (noise >= MIN_NOISE) & (noise < np.inf), f"finite and at least {MIN_NOISE:g}")
    if not (np.isfinite(plan.clip_norm) and plan.clip_norm > 0.0):
        raise InputError(f"plan.clip_norm = {plan.clip_norm!r} must be finite and above 0 where there is noise.")
    if plan.method in SAME_NOISE:
        same = np.isclose(noise, noise[0], rtol=_RTOL, atol=0.0)
        _demand(plan, "noise_multiplier", same, f"that of all other groups where plan.method = {plan.method!r}")
    _demand(plan, "clip_norm", np.isclose(norms, clip_norms(plan), rtol=_RTOL, atol=0.0), "c σ^t / σ_n^t")


def clip_norms(plan: Plan) -> Array:
    """c_n^t = c σ^t / σ_n^t."""
    noise = np.array([row.noise_multiplier for row in plan.groups])
    return np.asarray(plan.clip_norm * harmonic_mean(plan.groups, noise) / noise)


def _check_lengths(plan: Plan, row: GroupPlan) -> None:
    for name in ("sampling_rate", "noise_multiplier", "clip_norm"):
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
