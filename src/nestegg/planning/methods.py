"""Methods as plans: every method of the paper is a planner's schedule, dressed with clip norms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import (
    ORDERS,
    Accountant,
    Array,
    Charge,
    S,
    compose,
    renyi_account,
)
from nestegg.checks import one_of, positive, whole
from nestegg.errors import InputError
from nestegg.planning import planners
from nestegg.planning.accounts import check_accountant, planning_accountants
from nestegg.planning.budget import Group, at_smallest_budget, check_federation
from nestegg.planning.consistency import MAX_CLIP_NORM, checked_charge
from nestegg.planning.plan import ACCOUNTANTS, COMPOSITIONS, METHODS, SAME_NOISE, GroupPlan, Plan, harmonic_mean
from nestegg.planning.planners import Schedule
from nestegg.planning.shapes import make_shape

# Groups with similar budgets are planned together: their best orders are close, so few orders need a search.
_BATCH = 128

History = Mapping[str, Sequence[Charge]]


def plan(
    groups: Sequence[Group],
    rounds: int,
    *,
    method: str = "spend-as-you-go",
    composition: str = "exact",
    accountant: str | Accountant[Any] = "rdp",
    spending_rate: float = 0.9,
    clip_norm: float = 250.0,
    shape: str | Sequence[float] = "geometric",
    end_ratio: float = 0.5,
    already_spent: History | None = None,
) -> Plan:
    """Turn budgets into a spending plan over all rounds.

    Args:
        groups: the clients, by budget.
        rounds: T.
        method: fedavg, dp-fedavg, idp-fedavg, adaptive-clipping, spend-as-you-go or shaped.
        composition: of spend-as-you-go: exact (nothing left over) or paper (as printed, repaired).
        accountant: rdp; pld (tighter and slower); gaussian (exact, for clients in every round); renyi (one order, which
            follows from a group's budget). The last two also hold where later plans depend on earlier results. An
            accountant itself serves all groups, as one with the order of budgets of which this plan is only a part.
        spending_rate: q, the sampling rate in spending rounds.
        clip_norm: c, the mean of the clients' clip norms.
        shape: of the method shaped: geometric, linear, cosine, or the relative noise of every round.
        end_ratio: of a named shape: noise of the last round over that of the first.
        already_spent: charges before this plan, by group name; they count against the budgets.

    >>> import nestegg
    >>> strict = nestegg.Group("strict", 34, nestegg.Budget(10.0), saving_rate=0.5, transition=13)
    >>> made = nestegg.plan([strict], rounds=25)
    >>> [round(made.groups[0].noise_multiplier[t - 1], 3) for t in (1, 12, 13, 25)]
    [2.424, 2.014, 1.967, 1.967]
    """
    one_of("method", method, METHODS)
    one_of("composition", composition, COMPOSITIONS)
    name = one_of("accountant", str(getattr(accountant, "name", accountant)), ACCOUNTANTS)
    if positive("clip_norm", clip_norm) > MAX_CLIP_NORM:
        raise InputError(f"clip_norm = {clip_norm!r} must be at most {MAX_CLIP_NORM:g}.")
    groups = list(groups) if isinstance(groups, Iterable) else [groups]
    check_federation(groups, rounds, spending_rate)
    rounds, spending_rate = int(rounds), float(spending_rate)
    composition = composition if method == "spend-as-you-go" else "exact"  # uniform methods know one only
    history = checked_history("already_spent", already_spent or {}, groups)
    members = _members(method, groups, rounds, spending_rate)
    if method == "fedavg":
        size = (len(members), rounds)
        schedule = Schedule(np.full(size, spending_rate), np.zeros(size), np.full(size, np.inf))
        return _assemble(members, schedule, history, method, composition, accountant, spending_rate, np.inf)
    if name != "gaussian" or isinstance(accountant, str):  # one that is given may know what to do with sampling
        check_accountant(name, members, spending_rate)
    way = _Way(
        rounds,
        spending_rate,
        composition,
        make_shape(shape, end_ratio, rounds) if method == "shaped" else None,
        method in SAME_NOISE,
    )
    schedule = _schedule(members, way, accountant, history)
    return _assemble(members, schedule, history, method, composition, accountant, spending_rate, clip_norm)


def replan(plan_: Plan, after: int, lost: History) -> Plan:
    """The rest of a plan, made anew from what is spent after `after` of its rounds and what was lost besides."""
    after = whole("after", after, 0, plan_.rounds - 1)
    lost = checked_history("lost", lost, [row.group for row in plan_.groups])
    private = plan_.method != "fedavg"  # without noise there is nothing to account for
    spent = {r.group.name: (*r.charges(after), *lost.get(r.group.name, ())) for r in plan_.groups if private}
    return rest_of(plan_, after, [row.group for row in plan_.groups], spent)


def rest_of(
    plan_: Plan,
    after: int,
    groups: Sequence[Group],
    already_spent: History,
    account: Accountant[Any] | None = None,
) -> Plan:
    """The rounds after round `after`, as the plan was made or by another account, for groups with another history."""
    own = renyi_account(*plan_.orders) if plan_.accountant == "renyi" and plan_.orders else plan_.accountant
    return plan(
        [replace(group, transition=max(1, (group.transition or 1) - after)) for group in groups],
        plan_.rounds - after,
        method=plan_.method,
        composition=plan_.composition,
        accountant=own if account is None else account,
        spending_rate=plan_.spending_rate,
        clip_norm=plan_.clip_norm if np.isfinite(plan_.clip_norm) else 1.0,
        shape=plan_.groups[0].noise_multiplier[after:],
        already_spent=already_spent,
    )


def _members(method: str, groups: Sequence[Group], rounds: int, spending_rate: float) -> tuple[Group, ...]:
    """The groups as the method sees them: uniform methods never save, two of them know one budget only."""
    if method != "spend-as-you-go":
        groups = [replace(group, saving_rate=spending_rate) for group in groups]
    if method in SAME_NOISE:
        groups = at_smallest_budget(groups)
    return tuple(group.resolved(rounds, spending_rate) for group in groups)


@dataclass(frozen=True, eq=False)
class _Way:
    """How budgets are to be spent, whoever has them."""

    rounds: int
    spending_rate: float
    composition: str
    curve: Array | None
    same_noise: bool


def _schedule(groups: Sequence[Group], way: _Way, accountant: str | Accountant[Any], history: History) -> Schedule:
    """Plan groups of one accountant together, in batches of similar budgets, and put their rows back in order."""
    charges = [charge for some in history.values() for charge in some]
    accountants = planning_accountants(accountant, groups, way.rounds, way.spending_rate, charges)
    batches: list[tuple[Accountant[Any], NDArray[np.intp]]] = []
    order = np.argsort([group.budget.epsilon for group in groups], kind="stable")
    for one in dict.fromkeys(accountants):
        rows = np.array([row for row in order if accountants[row] == one])
        batches += [(one, rows[start : start + _BATCH]) for start in range(0, len(rows), _BATCH)]
    parts = [_batch([groups[row] for row in rows], way, one, history) for one, rows in batches]
    place = np.argsort(np.concatenate([rows for _, rows in batches]))
    made = Schedule(*(np.concatenate(columns)[place] for columns in zip(*map(astuple, parts), strict=True)))
    if not way.same_noise or not history:
        return made
    # Then all have one budget, and so one accountant.
    noise = np.broadcast_to(made.noise_multiplier.max(axis=0), made.noise_multiplier.shape)
    spent = _spent_by(groups, accountants[0], history)
    return planners.with_noise(noise, made.sampling_rate, groups[0].budget.delta, accountants[0], spent)


def _batch(batch: Sequence[Group], way: _Way, accountant: Accountant[Any], history: History) -> Schedule:
    spent = _spent_by(batch, accountant, history)
    if way.curve is None:
        return planners.spend_as_you_go(batch, way.rounds, way.spending_rate, accountant, spent, way.composition)
    return planners.shaped(batch, way.spending_rate, accountant, spent, way.curve)


def _spent_by(groups: Sequence[Group], accountant: Accountant[S], history: History) -> S:
    """What every group has spent before."""
    spent = accountant.spend(np.zeros(len(groups)), 1.0)  # never sampled, nothing spent
    for i, group in enumerate(groups):
        if charges := history.get(group.name):
            spent = spent.replaced(np.array([i]), compose(accountant, charges))
    return spent


def _assemble(
    groups: Sequence[Group],
    schedule: Schedule,
    history: History,
    method: str,
    composition: str,
    accountant: str | Accountant[Any],
    spending_rate: float,
    clip_norm: float,
) -> Plan:
    """Lines 10 to 14: σ^t, and clip norms c_n^t = c σ^t / σ_n^t, so that c_n^t σ_n^t is the same for everyone."""
    clip = np.full_like(schedule.noise_multiplier, clip_norm)
    if np.isfinite(clip_norm):
        mean = harmonic_mean(groups, schedule.noise_multiplier)
        clip = clip_norm * mean / schedule.noise_multiplier
    rows = tuple(
        GroupPlan(
            group=group,
            sampling_rate=tuple(schedule.sampling_rate[i].tolist()),
            noise_multiplier=tuple(schedule.noise_multiplier[i].tolist()),
            clip_norm=tuple(clip[i].tolist()),
            epsilon_spent=tuple(schedule.epsilon_spent[i].tolist()),
            already_spent=tuple(history.get(group.name, ())),
        )
        for i, group in enumerate(groups)
    )
    return Plan(
        method=method,
        composition=composition,
        accountant=accountant if isinstance(accountant, str) else accountant.name,
        spending_rate=float(spending_rate),
        clip_norm=float(clip_norm),
        orders=ORDERS if accountant == "rdp" else getattr(accountant, "orders", ()),
        groups=rows,
    )


def checked_history(field: str, history: History, groups: Sequence[Group]) -> dict[str, tuple[Charge, ...]]:
    """Charges of known groups, each a release that exists."""
    if not isinstance(history, Mapping):
        raise InputError(f"{field} must give a list of charges by group name, as in {{'strict': [Charge(0.9, 2.0)]}}.")
    checked = {}
    for name, charges in history.items():
        one_of(field, name, [group.name for group in groups])
        checked[name] = tuple(checked_charge(f"{field} of {name!r}", charge) for charge in charges)
    return checked
