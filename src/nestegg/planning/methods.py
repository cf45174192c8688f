"""Methods as plans: every method of the paper is a planner's schedule, dressed with clip norms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import (
    MAX_NOISE,
    MIN_NOISE,
    ORDERS,
    Accountant,
    Array,
    Charge,
    PldAccountant,
    RdpAccountant,
    S,
    compose,
    first_guess,
)
from nestegg.checks import MAX_ROUNDS, one_of, positive, whole
from nestegg.errors import InputError
from nestegg.planning import planners
from nestegg.planning.budget import Group, at_smallest_budget, check_federation
from nestegg.planning.plan import ACCOUNTANTS, COMPOSITIONS, METHODS, SAME_NOISE, GroupPlan, Plan, harmonic_mean
from nestegg.planning.planners import Schedule
from nestegg.planning.shapes import make_shape

# Groups with similar budgets are planned together: their best orders are close, so few orders need a search.
_BATCH = 128
MAX_CLIP_NORM = 1e12  # beyond, noise would leave the range of single precision

History = Mapping[str, Sequence[Charge]]


def plan(
    groups: Sequence[Group],
    rounds: int,
    *,
    method: str = "spend-as-you-go",
    composition: str = "exact",
    accountant: str = "rdp",
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
        accountant: rdp, or pld (tighter and slower).
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
    one_of("accountant", accountant, ACCOUNTANTS)
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
    curve = make_shape(shape, end_ratio, rounds) if method == "shaped" else None
    same_noise = method in SAME_NOISE
    if accountant == "rdp":
        schedule = _schedule(members, rounds, spending_rate, RdpAccountant(), composition, curve, history, same_noise)
    else:
        judge = _pld_accountant(members, rounds, spending_rate, history)
        schedule = _schedule(members, rounds, spending_rate, judge, composition, curve, history, same_noise)
    return _assemble(members, schedule, history, method, composition, accountant, spending_rate, clip_norm)


def replan(plan_: Plan, after: int, lost: History) -> Plan:
    """The rest of a plan, made anew from what is spent after `after` of its rounds and what was lost besides."""
    after = whole("after", after, 0, plan_.rounds - 1)
    lost = checked_history("lost", lost, [row.group for row in plan_.groups])
    private = plan_.method != "fedavg"  # without noise there is nothing to account for
    spent = {r.group.name: (*r.charges(after), *lost.get(r.group.name, ())) for r in plan_.groups if private}
    return rest_of(plan_, after, [row.group for row in plan_.groups], spent)


def rest_of(plan_: Plan, after: int, groups: Sequence[Group], already_spent: History) -> Plan:
    """The rounds after round `after`, planned as the plan was, for groups with another history."""
    return plan(
        [replace(group, transition=max(1, (group.transition or 1) - after)) for group in groups],
        plan_.rounds - after,
        method=plan_.method,
        composition=plan_.composition,
        accountant=plan_.accountant,
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


def _schedule(
    groups: Sequence[Group],
    rounds: int,
    spending_rate: float,
    accountant: Accountant[S],
    composition: str,
    curve: Array | None,
    history: History,
    same_noise: bool,
) -> Schedule:
    """Plan the groups in batches of similar budgets and put their rows back in order."""

    def spent_by(batch: Sequence[Group]) -> S:
        spent = accountant.spend(np.zeros(len(batch)), 1.0)  # never sampled, nothing spent
        for i, group in enumerate(batch):
            if charges := history.get(group.name):
                spent = spent.replaced(np.array([i]), compose(accountant, charges))
        return spent

    order = np.argsort([group.budget.epsilon for group in groups], kind="stable")
    batches = [order[start : start + _BATCH] for start in range(0, len(groups), _BATCH)]

    def plan_batch(rows: NDArray[np.intp]) -> Schedule:
        batch = [groups[row] for row in rows]
        if curve is None:
            return planners.spend_as_you_go(batch, rounds, spending_rate, accountant, spent_by(batch), composition)
        return planners.shaped(batch, spending_rate, accountant, spent_by(batch), curve)

    parts = [plan_batch(rows) for rows in batches]
    place = np.argsort(np.concatenate(batches))
    made = Schedule(*(np.concatenate(columns)[place] for columns in zip(*map(astuple, parts), strict=True)))
    if not same_noise or not history:
        return made
    noise = np.broadcast_to(made.noise_multiplier.max(axis=0), made.noise_multiplier.shape)
    delta = groups[0].budget.delta
    return planners.with_noise(noise, made.sampling_rate, delta, accountant, spent_by(groups))


def _assemble(
    groups: Sequence[Group],
    schedule: Schedule,
    history: History,
    method: str,
    composition: str,
    accountant: str,
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
        accountant=accountant,
        spending_rate=float(spending_rate),
        clip_norm=float(clip_norm),
        orders=ORDERS if accountant == "rdp" else (),
        groups=rows,
    )


def _pld_accountant(groups: Sequence[Group], rounds: int, spending_rate: float, history: History) -> PldAccountant:
    """A grid of losses that suits the weakest release the plan can hold: the slowest saver with the most noise."""
    strictest = min(group.budget.epsilon for group in groups)
    noise = first_guess(spending_rate, rounds, strictest, groups[0].budget.delta)
    slowest = min(group.saving_rate or spending_rate for group in groups)
    releases = [(slowest, float(noise)), *(charge[:2] for charges in history.values() for charge in charges)]
    rates, noises = np.array(releases).T
    return PldAccountant.for_releases(rates, noises)


def checked_history(field: str, history: History, groups: Sequence[Group]) -> dict[str, tuple[Charge, ...]]:
    """Charges of known groups, each a release that exists."""
    if not isinstance(history, Mapping):
        raise InputError(f"{field} must give a list of charges by group name, as in {{'strict': [Charge(0.9, 2.0)]}}.")
    checked = {}
    for name, charges in history.items():
        one_of(field, name, [group.name for group in groups])
        checked[name] = tuple(checked_charge(f"{field} of {name!r}", charge) for charge in charges)
    return checked


def checked_charge(field: str, charge: Sequence[float]) -> Charge:
    """A charge whose numbers make sense."""
    try:
        q, sigma, rounds = (*charge, 1) if len(charge) == 2 else charge
        sound = (
            0.0 <= q <= 1.0 and MIN_NOISE <= sigma <= MAX_NOISE and rounds == int(rounds) and 1 <= rounds <= MAX_ROUNDS
        )
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise InputError(
            f"{field}: {charge!r} must be a rate from 0 to 1, a noise multiplier from {MIN_NOISE:g} to {MAX_NOISE:g}, "
            "and a whole number of rounds."
        )
    return Charge(float(q), float(sigma), int(rounds))
