"""Re-planning what is left of a plan from what its clients have really spent, in it and elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nestegg.accounting import Accountant, Array, Charge
from nestegg.checks import one_of, whole
from nestegg.errors import InputError, reason
from nestegg.named import load_object
from nestegg.planning.accounts import ACCOUNTANTS
from nestegg.planning.budget import Budget, Group, checked_charges
from nestegg.planning.consistency import clip_norms
from nestegg.planning.curves import Pace
from nestegg.planning.judge import epsilons
from nestegg.planning.methods import planned
from nestegg.planning.parameters import parameters_of, planner_with
from nestegg.planning.plan import GroupPlan, Plan
from nestegg.planning.planners import Each, Planner, Rest, SpendAsYouGo
from nestegg.planning.registry import Method


class Standing(NamedTuple):
    """Where somebody stands.

    Attributes:
        whose: a word for it.
        budget: what may be spent in the end.
        charges: all that was charged against it, the rounds of the plan that are done included.
        account: by what it is kept; by default as the plan is, or by Rényi curves where that cannot account for it.
    """

    whose: str
    budget: Budget
    charges: tuple[Charge, ...]
    account: Accountant[Any] | None = None


def replan(plan: Plan, after: int, lost: Mapping[str, Sequence[Charge]], local: Pace | None = None) -> Plan:
    """The rest of a plan, made anew from what is spent after `after` of its rounds and what was lost besides."""
    after = whole("after", after, 0, plan.rounds - 1)
    besides = _checked("lost", lost, [row.group.name for row in plan.groups])
    groups = [
        replace(
            row.group, already_spent=(*row.charges(after), *besides.get(row.group.name, ())) if plan.is_private else ()
        )
        for row in plan.groups  # without noise there is nothing to account for
    ]
    planner = _planner_of(plan)
    rests = [_rest(plan, planner, after, row) for row in plan.groups]
    accountant = _accountant(plan, [charge for group in groups for charge in group.already_spent])
    made = _planned_rest(plan, plan.about, after, groups, rests, accountant=accountant, local=local)
    # Where all go on alike, the new plan says how; otherwise its rows do.
    alike = type(rests[0]) is type(planner) and all(rest == rests[0] for rest in rests)
    parameters = parameters_of(plan.method, rests[0]) if plan.about.is_own and alike else plan.parameters
    return replace(made, composition=plan.composition, parameters=parameters)


def replanned(
    plan: Plan,
    after: int,
    standings: Mapping[str, Sequence[Standing]],
    local: Pace | None = None,
) -> Plan:
    """A whole plan whose first `after` rounds are as they were, and whose others keep everybody within budget.

    Members of a group may stand differently. They stay together, so in every round the group takes the noise of
    whoever needs the most, and the rate of whoever may be sampled the least.

    Args:
        plan: the plan so far.
        after: rounds of it that are paid.
        standings: of every group, by name. The first is that of the plan itself, which the new plan shows.
        local: learning rates of all rounds of the plan, for planners that ask for them.
    """
    after = whole("after", after, 0, plan.rounds - 1)
    needs = _needs(plan, after, standings, local)
    if plan.about.same_noise:
        most = np.max([noise for _, noise in needs.values()], axis=0)
        needs = {name: (rates, most) for name, (rates, _) in needs.items()}
    rows = [_spliced(row, after, *needs[row.group.name], standings[row.group.name][0]) for row in plan.groups]
    made = replace(plan, groups=tuple(rows))
    norms = clip_norms(made)
    complete = [
        replace(row, clip_norm=tuple(norms[i].tolist()), epsilon_spent=tuple(epsilons(made, row).tolist()))
        for i, row in enumerate(rows)
    ]
    return replace(made, groups=tuple(complete))


def _needs(
    plan: Plan, after: int, standings: Mapping[str, Sequence[Standing]], local: Pace | None
) -> dict[str, tuple[Array, Array]]:
    """By group, rates and noise of the rounds that are left: the least and the most that its members need."""
    needs: dict[str, tuple[Array, Array]] = {}
    # Where all have the same noise, everybody's own need comes first; the most of them is taken in the end.
    how, planner = replace(plan.about, same_noise=False), _planner_of(plan)
    alike: dict[tuple[float, str | Accountant[Any]], list[tuple[GroupPlan, Standing]]] = {}
    for row in plan.groups:
        for standing in dict.fromkeys(standings[row.group.name]):
            accountant = _accountant(plan, standing.charges) if standing.account is None else standing.account
            alike.setdefault((standing.budget.delta, accountant), []).append((row, standing))
    # A federation is planned at one δ, and by one account.
    for (_, accountant), chosen in alike.items():
        groups = [
            replace(
                row.group,
                name=f"{row.group.name}, {standing.whose}",
                budget=standing.budget,
                members=(),
                already_spent=standing.charges,
            )
            for row, standing in chosen
        ]
        rests = [_rest(plan, planner, after, row) for row, _ in chosen]
        made = _planned_rest(plan, how, after, groups, rests, accountant=accountant, local=local)
        for (old, _), new in zip(chosen, made.groups, strict=True):
            rates, noise = np.array(new.sampling_rate), np.array(new.noise_multiplier)
            others = needs.get(old.group.name, (rates, noise))
            needs[old.group.name] = np.minimum(others[0], rates), np.maximum(others[1], noise)
    return needs


def _planned_rest(
    plan: Plan,
    how: Method,
    after: int,
    groups: Sequence[Group],
    rests: Sequence[Planner],
    *,
    accountant: str | Accountant[Any],
    local: Pace | None,
) -> Plan:
    """The rounds after round `after`, as the plan was made but for the account, each group by its own planner."""
    return planned(
        replace(how, planner=Each(rests)),
        [replace(group, transition=max(1, (group.transition or 1) - after)) for group in groups],
        plan.rounds - after,
        accountant=accountant,
        spending_rate=plan.spending_rate,
        clip_norm=plan.clip_norm if plan.is_private else 1.0,
        local=None if local is None else local.after(after),
    )


def _accountant(plan: Plan, charges: Sequence[Charge]) -> str | Accountant[Any]:
    """By what a plan goes on after charges: by its own accountant, if that one can account for them."""
    return ACCOUNTANTS[plan.accountant].again(plan, charges)


def _planner_of(plan: Plan) -> Planner:
    """The planner that made a plan: the only place at which one that is not ours is imported again."""
    planner = plan.about.planner
    if planner is None:
        return planner_with("plan.parameters", load_object("plan.method", plan.method), plan.parameters)
    return SpendAsYouGo(plan.composition) if isinstance(planner, SpendAsYouGo) else planner


def _rest(plan: Plan, planner: Planner, after: int, row: GroupPlan) -> Planner:
    """The planner for what is left of a group; one that does not say how it goes on keeps its rates and proportions."""
    go_on = getattr(planner, "rest", None)
    if go_on is None:
        return Rest(row.sampling_rate[after:], row.noise_multiplier[after:])
    try:
        rest: Planner = go_on(after, row)
    except Exception as error:  # code of somebody else may raise anything
        raise InputError(f"{plan.method}: rest(after, row) failed, {reason(error)}.") from error
    if not callable(getattr(rest, "schedule", None)):
        raise InputError(f"{plan.method}: rest(after, row) returned {rest!r}; it must return a planner.")
    return rest


def _spliced(row: GroupPlan, after: int, rates: Array, noise: Array, standing: Standing) -> GroupPlan:
    """The rounds that are done, then the rest; what else was charged comes before both."""
    done = Counter(zip(row.sampling_rate[:after], row.noise_multiplier[:after], strict=True))
    charged = Counter({(q, sigma): count for q, sigma, count in standing.charges}) - done
    besides = tuple(Charge(q, sigma, count) for (q, sigma), count in charged.items())
    return replace(
        row,
        group=replace(row.group, budget=standing.budget, already_spent=besides),
        sampling_rate=(*row.sampling_rate[:after], *rates.tolist()),
        noise_multiplier=(*row.noise_multiplier[:after], *noise.tolist()),
        epsilon_spent_pld=None,
    )


def _checked(
    field: str, history: Mapping[str, Sequence[Charge]], names: Sequence[str]
) -> dict[str, tuple[Charge, ...]]:
    """Charges of known groups, each a release that exists."""
    if not isinstance(history, Mapping):
        raise InputError(f"{field} must give a list of charges by group name, as in {{'strict': [Charge(0.9, 2.0)]}}.")
    return {
        one_of(field, name, names): checked_charges(f"{field} of {name!r}", charges)
        for name, charges in history.items()
    }
