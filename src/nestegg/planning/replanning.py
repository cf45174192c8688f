"""Re-planning what is left of a run from what its clients have really spent, in it and elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nestegg.accounting import Array, Charge
from nestegg.checks import whole
from nestegg.planning.budget import Budget
from nestegg.planning.judge import clip_norms, epsilon_by_pld, epsilons
from nestegg.planning.methods import SAME_NOISE, rest_of
from nestegg.planning.plan import GroupPlan, Plan


class Standing(NamedTuple):
    """A budget, and all that was charged against it, the rounds of the plan that are done included."""

    budget: Budget
    charges: tuple[Charge, ...]


def replanned(plan: Plan, after: int, standings: Mapping[str, Sequence[Standing]]) -> Plan:
    """A whole plan whose first `after` rounds are as they were, and whose others keep everybody within budget.

    Members of a group may stand differently. They stay together, so in every round the group takes the noise
    of whoever needs the most; its row then shows whoever is closest to the budget.
    """
    after = whole("after", after, 0, plan.rounds - 1)
    delta = min(standing.budget.delta for group in standings.values() for standing in group)
    # A smaller δ is a stronger promise: who keeps it keeps the own one too. Planning takes one for all.
    own = [
        (row, f"{row.group.name}/{i}", Standing(Budget(standing.budget.epsilon, delta), standing.charges))
        for row in plan.groups
        for i, standing in enumerate(dict.fromkeys(standings[row.group.name]))
    ]
    groups = [replace(row.group, name=name, budget=standing.budget) for row, name, standing in own]
    # Where all have the same noise, everybody's own need comes first: the most of them is then taken below.
    method = "idp-fedavg" if plan.method in SAME_NOISE else plan.method
    rest = rest_of(replace(plan, method=method), after, groups, {name: standing.charges for _, name, standing in own})
    rows = []
    for row in plan.groups:
        mine = [i for i, (other, _, _) in enumerate(own) if other is row or plan.method in SAME_NOISE]
        noise = np.max([rest.groups[i].noise_multiplier for i in mine], axis=0)
        candidates = [_spliced(row, after, rest.groups[i], noise, own[i][2]) for i in mine if own[i][0] is row]
        rows.append(max(candidates, key=lambda made: _used(plan, made)))
    return _completed(replace(plan, groups=tuple(rows)))


def _spliced(row: GroupPlan, after: int, rest: GroupPlan, noise: Array, standing: Standing) -> GroupPlan:
    """The rounds that are done, then the rest; what else was charged comes before both."""
    done = Counter(zip(row.sampling_rate[:after], row.noise_multiplier[:after], strict=True))
    besides = Counter({(q, sigma): count for q, sigma, count in standing.charges}) - done
    return replace(
        row,
        group=replace(row.group, budget=standing.budget),
        sampling_rate=(*row.sampling_rate[:after], *rest.sampling_rate),
        noise_multiplier=(*row.noise_multiplier[:after], *noise.tolist()),
        epsilon_spent_pld=None,
        already_spent=tuple(Charge(q, sigma, count) for (q, sigma), count in besides.items()),
    )


def _used(plan: Plan, row: GroupPlan) -> float:
    """The share of its budget that a row uses."""
    last = epsilon_by_pld(row) if plan.accountant == "pld" else epsilons(plan, row)[-1]
    return float(last) / row.group.budget.epsilon


def _completed(plan: Plan) -> Plan:
    """What follows from rates and noise: clip norms, and what is spent after every round."""
    norms = clip_norms(plan)
    return replace(
        plan,
        groups=tuple(
            replace(row, clip_norm=tuple(norms[i].tolist()), epsilon_spent=tuple(epsilons(plan, row).tolist()))
            for i, row in enumerate(plan.groups)
        ),
    )
