"""Who is who: clients' data joined with the groups of a plan, by name or by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nestegg.data.joining import joined
from nestegg.data.sources import MappingSource, Source, as_source
from nestegg.errors import InputError
from nestegg.planning import Plan
from nestegg.training.clients import Clients, ClientsInMemory, LazyClients


def members(
    plan: Plan, clients: Sequence[Any] | Mapping[str, Any] | Source, device: str
) -> tuple[tuple[str, ...], Clients]:
    """Return everybody's name and data in the order of the plan's groups.

    Raises:
        InputError: a name in the data is in no group, or the reverse; or groups do not say who is in them.
    """
    names = [name for row in plan.groups for name in row.group.members]
    if isinstance(clients, Sequence):
        if names:
            raise InputError("the plan's groups name their clients: give data by name, not as a list.")
        if len(clients) != plan.clients:
            raise InputError(f"clients has {len(clients)} datasets; the plan is for {plan.clients} clients.")
        return tuple(f"client-{number}" for number in range(1, len(clients) + 1)), ClientsInMemory(clients, device)
    source = as_source(clients)
    if not isinstance(source, Source):
        kind = type(clients).__name__
        raise InputError(f"clients of type {kind} must be a mapping of names to data, a source, or a list.")
    if not names and len(plan.groups) == 1:
        names = list(source.names)
        if len(names) != plan.clients:
            raise InputError(f"clients are {len(names)} by name; the plan is for {plan.clients} clients.")
    if len(names) != plan.clients:
        raise InputError(
            "clients have names, and the plan's groups do not say who is in them: give names where groups are made, as "
            "in Group('strict', ['ada', 'bob'], Budget(10.0))."
        )
    positions = joined(names, source.names)
    if isinstance(source, MappingSource) and source.sizes is not None:
        return tuple(names), ClientsInMemory(
            [source.load(source.names[place]) for place in positions.tolist()], device, names
        )
    return tuple(names), LazyClients(source, names, positions, device)
