"""Individual budgets become few groups, by rounding ε down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nestegg.checks import whole
from nestegg.errors import InputError
from nestegg.planning.budget import Budget, Group
from nestegg.planning.clients import ClientBudgets

MAX_GROUPS = 1000


def bucket(clients: ClientBudgets, levels: int, delta: float) -> tuple[tuple[Group, ...], NDArray[np.intp]]:
    """Groups of clients with nearly equal budgets, each at the smallest ε among its members.

    Levels are spaced by a constant factor from the smallest ε to the largest, so that nobody gives up more than
    1 − (min/max)^(1/levels) of a budget, and nobody is ever over one. Where there are no more distinct budgets
    than levels, nothing is rounded. Clients with other saving rates or transitions are other groups.

    Returns:
        The groups, and the index of the group of every client.
    """
    whole("budget_levels", levels, 1)
    distinct, level = np.unique(clients.epsilon, return_inverse=True)
    if distinct.size > levels:
        edges = np.geomspace(distinct[0], distinct[-1], levels + 1)[1:-1]
        level = np.searchsorted(edges, clients.epsilon, side="right")
    keys = np.column_stack([level, np.nan_to_num(clients.saving_rate, nan=0.0), clients.transition])
    _, member = np.unique(keys, axis=0, return_inverse=True)
    member = member.ravel()
    count = int(member.max()) + 1
    if count > MAX_GROUPS:
        raise InputError(
            f"budget_levels = {levels} makes {count} groups with the saving rates and transitions of the clients; "
            f"at most {MAX_GROUPS} are planned."
        )
    smallest = np.full(count, np.inf)
    np.minimum.at(smallest, member, clients.epsilon)
    sizes = np.bincount(member)
    first = np.unique(member, return_index=True)[1]
    groups = tuple(
        Group(
            name=f"level-{g + 1:0{len(str(count))}d}",
            clients=int(sizes[g]),
            budget=Budget(float(smallest[g]), delta),
            saving_rate=None if np.isnan(clients.saving_rate[i]) else float(clients.saving_rate[i]),
            transition=int(clients.transition[i]) or None,
        )
        for g, i in enumerate(first)
    )
    return groups, member


def grouped(
    budgets: Mapping[str, Budget | float],
    *,
    levels: int = 32,
    delta: float = 1e-5,
    saving_rate: float | None = None,
    transition: int | None = None,
) -> tuple[Group, ...]:
    """Return groups of clients with nearly equal budgets, from everybody's own budget by name.

    A group has the smallest ε among its members, so that nobody is ever over budget; see `bucket`.

    Args:
        budgets: by client: a `Budget`, or its ε alone.
        levels: how many different budgets there are at most.
        delta: of budgets that are given by ε alone; it must be the same for all.
        saving_rate: of all groups, as for `Group`.
        transition: likewise.

    >>> [(group.budget.epsilon, group.members) for group in grouped({"ada": 1.0, "bob": 8.0, "eve": 1.0})]
    [(1.0, ('ada', 'eve')), (8.0, ('bob',))]
    """
    if not isinstance(budgets, Mapping) or not budgets:
        raise InputError("budgets must give a Budget or an ε for at least one client, by name.")
    own = {}
    for name, budget in budgets.items():
        try:
            own[name] = budget if isinstance(budget, Budget) else Budget(budget, delta)
        except InputError as error:
            raise InputError(f"budgets: client {name!r}: {error}") from None
    deltas = {budget.delta for budget in own.values()}
    if len(deltas) > 1:
        raise InputError(f"budgets: delta = {', '.join(f'{one:g}' for one in sorted(deltas))} must be one for all.")
    epsilon = np.array([budget.epsilon for budget in own.values()])
    none = np.full(epsilon.shape, np.nan)
    clients = ClientBudgets(tuple(own), epsilon, none, np.zeros(epsilon.shape, np.int64))
    groups, member = bucket(clients, levels, deltas.pop())
    return tuple(
        replace(
            group,
            members=tuple(clients.client[i] for i in np.flatnonzero(member == g)),
            saving_rate=saving_rate,
            transition=transition,
        )
        for g, group in enumerate(groups)
    )
