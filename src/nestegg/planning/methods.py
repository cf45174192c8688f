"""From groups and a planner to a plan: the planner's schedule, checked and dressed with clip norms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nestegg.accounting import Accountant
from nestegg.checks import positive
from nestegg.errors import InputError
from nestegg.planning.accounts import accounting_of, planning_accountants
from nestegg.planning.budget import Group, at_smallest_budget, check_federation, checked_charges
from nestegg.planning.consistency import MAX_CLIP_NORM
from nestegg.planning.curves import Local, Pace, pace_of
from nestegg.planning.judge import remember
from nestegg.planning.outside import checked_schedule
from nestegg.planning.parameters import parameters_of
from nestegg.planning.plan import GroupPlan, Plan, harmonic_mean
from nestegg.planning.planners import Planner, SpendAsYouGo
from nestegg.planning.registry import Method, default_method, method_of
from nestegg.planning.schedule import Schedule
from nestegg.planning.setting import Setting


def plan(
    groups: Sequence[Group],
    rounds: int,
    *,
    method: str | Planner | None = None,
    accountant: str | Accountant[Any] | None = None,
    spending_rate: float | None = None,
    clip_norm: float = 10.0,
    local: Pace | Local | Sequence[float] | None = None,
) -> Plan:
    """Turn budgets into a spending plan over all rounds.

    Args:
        groups: the clients, by budget.
        rounds: T.
        method: fedavg, dp-fedavg, idp-fedavg, adaptive-clipping, spend-as-you-go, optimal or shaped; or a planner, one
            of ours with other parameters (`SpendAsYouGo`, `Optimal`, `Uniform`, `Shaped`) or one of your own. By
            default optimal, or spend-as-you-go where a group says how it saves.
        accountant: rdp; pld (tighter and slower); gaussian (exact, for clients in every round); renyi (one order, which
            follows from a group's budget). The last two also hold where later plans depend on earlier results. An
            accountant itself serves all groups, as one with the order of budgets of which this plan is only a part. By
            default gaussian for optimal where everybody is in every round and was before, and rdp else.
        spending_rate: q, the sampling rate in spending rounds; by default 1 for optimal, and 0.9 else.
        clip_norm: c, the mean of the clients' clip norms.
        local: what clients do, for planners that ask how large a round's steps are: a `LocalTraining`, or learning
            rates, for clip norms of gradients; a `Pace` for others. By default the default curve of learning rates.

    >>> import nestegg
    >>> strict = nestegg.Group("strict", 34, nestegg.Budget(10.0))
    >>> made = nestegg.plan([strict], rounds=25)
    >>> made.method, [round(made.groups[0].noise_multiplier[t - 1], 2) for t in (1, 12, 25)]
    ('optimal', [3.05, 1.95, 19.33])
    >>> saving = nestegg.Group("strict", 34, nestegg.Budget(10.0), saving_rate=0.5, transition=13)
    >>> made = nestegg.plan([saving], rounds=25)
    >>> made.method, [round(made.groups[0].noise_multiplier[t - 1], 3) for t in (1, 12, 13, 25)]
    ('spend-as-you-go', [2.424, 2.014, 1.967, 1.967])
    """
    groups = list(groups) if isinstance(groups, Iterable) else [groups]
    how = method_of(default_method(group for group in groups if isinstance(group, Group)) if method is None else method)
    spending_rate = how.spending_rate if spending_rate is None else spending_rate
    if accountant is None:
        accountant = "rdp" if any(map(_was_sampled, groups)) else how.accountant_at(spending_rate)
    parameters = parameters_of(how.written, how.planner) if how.has_parameters and how.planner is not None else {}
    made = planned(
        how,
        groups,
        rounds,
        accountant=accountant,
        spending_rate=spending_rate,
        clip_norm=clip_norm,
        local=local,
    )
    composition = how.planner.composition if isinstance(how.planner, SpendAsYouGo) else made.composition
    made = replace(made, composition=composition, parameters=parameters)
    if isinstance(accountant, str):  # one that is given may be anybody's
        remember(made)
    return made


def _was_sampled(group: Group) -> bool:
    """Whether a group has been left out of a round before, by chance."""
    if not isinstance(group, Group):
        return False  # which is refused
    charges = checked_charges(f"group {group.name!r}: already_spent", group.already_spent)
    return any(charge.sampling_rate < 1.0 for charge in charges)


def planned(
    how: Method,
    groups: Sequence[Group],
    rounds: int,
    *,
    accountant: str | Accountant[Any],
    spending_rate: float,
    clip_norm: float,
    local: Pace | Local | Sequence[float] | None = None,
) -> Plan:
    """Plan by a method with its planner; what the plan says of the planner's parameters is up to the caller."""
    accounting_of(accountant)
    if positive("clip_norm", clip_norm) > MAX_CLIP_NORM:
        raise InputError(f"clip_norm = {clip_norm!r} must be at most {MAX_CLIP_NORM:g}.")
    groups = list(groups)
    check_federation(groups, rounds, spending_rate, may_save=how.lets_save)
    rounds, spending_rate = int(rounds), float(spending_rate)
    members = _members(how, groups, rounds, spending_rate)
    setting = Setting(
        groups=tuple(replace(group, members=()) for group in members),  # names are no part of what is public
        rounds=rounds,
        spending_rate=spending_rate,
        accountants=tuple(planning_accountants(accountant, members, rounds, spending_rate)) if how.is_private else (),
        clip_norm=float(clip_norm) if how.is_private else np.inf,
        pace=pace_of(local, rounds),
    )
    made = _assembled(how, setting, accountant, _schedule(how, setting))
    rows = (replace(row, group=group) for row, group in zip(made.groups, members, strict=True))
    return replace(made, groups=tuple(rows))


def _members(how: Method, groups: Sequence[Group], rounds: int, spending_rate: float) -> tuple[Group, ...]:
    """The groups as the method sees them: only one of ours saves, two know one budget only."""
    if not how.lets_save:
        groups = [replace(group, saving_rate=spending_rate) for group in groups]
    if how.same_noise:
        groups = at_smallest_budget(groups)
    return tuple(group.resolved(rounds, spending_rate) for group in groups)


def _schedule(how: Method, setting: Setting) -> Schedule:
    """The schedule of a method's planner, which is not trusted where it is not ours."""
    assert how.planner is not None
    made = checked_schedule(how.written, how.planner, setting) if how.is_own else how.planner.schedule(setting)
    if not how.same_noise or not any(group.already_spent for group in setting.groups):
        return made
    # Histories differ: everybody takes the noise of whoever needs the most.
    noise = np.broadcast_to(made.noise_multiplier.max(axis=0), made.noise_multiplier.shape)
    return Schedule(made.sampling_rate, noise, setting.spent_by(made.sampling_rate, noise))


def _assembled(how: Method, setting: Setting, accountant: str | Accountant[Any], made: Schedule) -> Plan:
    """Lines 10 to 14: σ^t, and clip norms c_n^t = c σ^t / σ_n^t, so that c_n^t σ_n^t is the same for everyone."""
    assert made.epsilon_spent is not None
    clip = np.full_like(made.noise_multiplier, setting.clip_norm)
    if how.is_private:
        mean = harmonic_mean(setting.groups, made.noise_multiplier)
        clip = setting.clip_norm * mean / made.noise_multiplier
    rows = tuple(
        GroupPlan(
            group=group,
            sampling_rate=tuple(made.sampling_rate[i].tolist()),
            noise_multiplier=tuple(made.noise_multiplier[i].tolist()),
            clip_norm=tuple(clip[i].tolist()),
            epsilon_spent=tuple(made.epsilon_spent[i].tolist()),
        )
        for i, group in enumerate(setting.groups)
    )
    return Plan(
        method=how.written,
        composition="exact",
        accountant=accountant if isinstance(accountant, str) else accountant.name,
        spending_rate=setting.spending_rate,
        clip_norm=setting.clip_norm,
        orders=accounting_of(accountant).orders if isinstance(accountant, str) else getattr(accountant, "orders", ()),
        groups=rows,
    )
