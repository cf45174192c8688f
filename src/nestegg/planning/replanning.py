"""Re-planning what is left of a run from what its clients have really spent, in it and elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nestegg.accounting import Accountant, Array, Charge
from nestegg.checks import whole
from nestegg.planning.budget import Budget
from nestegg.planning.consistency import clip_norms
from nestegg.planning.judge import epsilons
from nestegg.planning.methods import rest_of
from nestegg.planning.plan import SAME_NOISE, GroupPlan, Plan


class Standing(NamedTuple):
    """Where somebody stands.

    Attributes:
        whose: a word for it.
        budget: what may be spent in the end.
        charges: all that was charged against it, the rounds of the plan that are done included.
        account: by what it is kept; by default as the plan is.
    """

    whose: str
    budget: Budget
    charges: tuple[Charge, ...]
    account: Accountant[Any] | None = None


def replanned(plan: Plan, after: int, standings: Mapping[str, Sequence[Standing]]) -> Plan:
    """A whole plan whose first `after` rounds are as they were, and whose others keep everybody within budget.

    Members of a group may stand differently. They stay together, so in every round the group takes the noise of
    whoever needs the most.

    Args:
        plan: the plan so far.
        after: rounds of it that are paid.
        standings: of every group, by name. The first is that of the plan itself, which the new plan shows.
    """
    after = whole("after", after, 0, plan.rounds - 1)
    noise = _noise(plan, after, standings)
    if plan.method in SAME_NOISE:
        noise = dict.fromkeys(noise, np.max(list(noise.values()), axis=0))
    rows = [_spliced(row, after, noise[row.group.name], standings[row.group.name][0]) for row in plan.groups]
    made = replace(plan, groups=tuple(rows))
    norms = clip_norms(made)
    complete = [
        replace(row, clip_norm=tuple(norms[i].tolist()), epsilon_spent=tuple(epsilons(made, row).tolist()))
        for i, row in enumerate(rows)
    ]
    return replace(made, groups=tuple(complete))


def _noise(plan: Plan, after: int, standings: Mapping[str, Sequence[Standing]]) -> dict[str, Array]:
    """The noise that every group needs in the rounds that are left: the most that any of its members does."""
    most: dict[str, Array] = {}
    # Where all have the same noise, everybody's own need comes first; the most of them is taken in the end.
    like = replace(plan, method="idp-fedavg") if plan.method in SAME_NOISE else plan
    everybody = [(row.group, standing) for row in plan.groups for standing in dict.fromkeys(standings[row.group.name])]
    # A federation is planned at one δ, and by one account.
    for delta, account in {(standing.budget.delta, standing.account): None for _, standing in everybody}:
        chosen = [(g, one) for g, one in everybody if (one.budget.delta, one.account) == (delta, account)]
        groups = [replace(g, name=f"{g.name}, {standing.whose}", budget=standing.budget) for g, standing in chosen]
        spent = {group.name: standing.charges for group, (_, standing) in zip(groups, chosen, strict=True)}
        rest = rest_of(like, after, groups, spent, account)
        for (group, _), row in zip(chosen, rest.groups, strict=True):
            needed = np.array(row.noise_multiplier)
            most[group.name] = np.maximum(most.get(group.name, needed), needed)
    return most


def _spliced(row: GroupPlan, after: int, noise: Array, standing: Standing) -> GroupPlan:
    """The rounds that are done, then the rest; what else was charged comes before both."""
    done = Counter(zip(row.sampling_rate[:after], row.noise_multiplier[:after], strict=True))
    besides = Counter({(q, sigma): count for q, sigma, count in standing.charges}) - done
    return replace(
        row,
        group=replace(row.group, budget=standing.budget),
        noise_multiplier=(*row.noise_multiplier[:after], *noise.tolist()),
        epsilon_spent_pld=None,
        already_spent=tuple(Charge(q, sigma, count) for (q, sigma), count in besides.items()),
    )
