"""From a configuration to its groups, to everybody in them by name, and to its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nestegg.checks import MAX_CLIENTS, MAX_ROUNDS, one_of, positive, probability, rate, whole
from nestegg.configuration.config import Config, GroupTable, Privacy, changed, is_own, left_open
from nestegg.configuration.method_keys import PLANNER_KEYS, reads
from nestegg.configuration.own import own_names
from nestegg.errors import InputError
from nestegg.named import is_named, load_object
from nestegg.planning import (
    COMPARED,
    Budget,
    Group,
    Plan,
    Planner,
    at_smallest_budget,
    known_method,
    plan,
    split_clients,
)
from nestegg.planning.clients import ClientBudgets, read_clients
from nestegg.planning.curves import CLIP_UNITS, CURVES, Pace
from nestegg.planning.levels import bucket
from nestegg.planning.parameters import planner_with

BUDGETS = ("individual", "smallest")
_QUICK = 1000  # rounds × groups that are planned in a moment


class Participants(NamedTuple):
    """Who takes part: groups, and in their order every client's name and own budget."""

    groups: tuple[Group, ...]
    clients: tuple[str, ...]
    budgets: tuple[Budget, ...]


def make_groups(config: Config) -> tuple[Group, ...]:
    """The groups that a configuration describes, each with a number of clients."""
    if config.federation.clients is None and is_own(config.federation.dataset):
        return make_participants(config).groups  # which counts the clients in the data
    return _read_groups(config)[0]


def make_participants(config: Config, names: Sequence[str] | None = None) -> Participants:
    """The groups and everybody in them.

    Clients are called as in their own data or in the file of budgets, and client-1, client-2 and so on without either.
    Groups without a file take clients of the data by a permutation that follows from the seed.

    Args:
        config: what describes them.
        names: of the clients in their own data, where that is open already; empty if data is divided among clients.
    """
    if names is None:
        names = own_names(config)
    if names:
        config = _counted(config, names)
    groups, file = _read_groups(config)
    if file is None:
        own = [table.epsilon for table, count in _with_counts(config) for _ in range(count)]
        clients = _permuted(names, config.training.seed) if names else _default_names(len(own))
        return Participants(groups, clients, _budgets(own, config))
    budgets, member = file
    order = member.argsort(kind="stable")
    clients = tuple(budgets.client[i] for i in order)
    if names:
        clients = tuple(names[i] for i in _joined(clients, names))
    return Participants(groups, clients, _budgets(budgets.epsilon[order].tolist(), config))


def make_plan(config: Config, groups: Sequence[Group] | None = None) -> Plan:
    """The plan that a configuration describes, for the groups that it describes."""
    privacy = config.privacy
    return plan(
        make_groups(config) if groups is None else groups,
        config.training.rounds,
        method=_method(config),
        accountant=privacy.accountant,
        spending_rate=privacy.spending_rate,
        clip_norm=positive("privacy.clip_norm", privacy.clip_norm),
        local=pace_of_config(config),
    )


def quick_plan(config: Config) -> Plan | None:
    """Return the plan of a configuration, if that takes a moment, and no clients of a file and nobody's own code."""
    privacy, size = config.privacy, config.training.rounds * len(config.privacy.groups)
    own = is_own(config.federation.dataset) or is_named(privacy.method) or privacy.budgets_file is not None
    return None if own or privacy.accountant == "pld" or size > _QUICK else make_plan(config)


def _default_names(clients: int) -> tuple[str, ...]:
    return tuple(f"client-{number}" for number in range(1, clients + 1))


def _counted(config: Config, names: Sequence[str]) -> Config:
    """The configuration with the number of clients in their own data, unless a file of budgets counts them, too."""
    clients = config.federation.clients
    if clients not in (None, len(names)):
        raise InputError(f"federation.clients = {clients} must be the number of clients in the data, {len(names)}.")
    return config if config.privacy.budgets_file is not None else changed(config, "federation", clients=len(names))


def _joined(budgets: Sequence[str], names: Sequence[str]) -> list[int]:
    """Where everybody with a budget is among those with data."""
    from nestegg.data.joining import joined  # whose package takes torch to import

    return [int(place) for place in joined(budgets, names)]


def _permuted(names: Sequence[str], seed: int) -> tuple[str, ...]:
    """Names in an order that follows from the seed, so that groups are as random as a partition is."""
    from nestegg.mechanism.randomness import Purpose, Randomness

    order = Randomness(seed, reproducible=True).stream(Purpose.PARTITION).permutation(len(names))
    return tuple(names[i] for i in order.tolist())


def with_method(config: Config, name: str) -> Config:
    """The configuration with a method as comparisons name it; what only other methods read is dropped.

    The configured method keeps the parameters it has.
    """
    method = known_method("methods", name, COMPARED)
    given = config.privacy.model_fields_set - {"adaptive"} | ({"adaptive"} if method.learns_clip_norm else set())
    update: dict[str, Any] = {"method": method.written, **method.changes}
    if name != config.privacy.method:
        given, update = given - {*PLANNER_KEYS}, {**update, "planner": {}}
        update |= left_open(config.privacy, method)
        if method.learns_clip_norm:  # by a bit of its own
            update |= {"side": config.privacy.side.model_copy(update={"clip_share": 0.0})}
    privacy = config.privacy.model_copy(update=update)
    return config.model_copy(update={"privacy": privacy.model_construct({*given, *update}, **dict(privacy))})


def pace_of_config(config: Config) -> Pace:
    """Return λ_t of every round, and what clip norms are norms of."""
    training = config.training
    curve = CURVES[one_of("training.schedule", training.schedule, CURVES)]
    rates = (training.learning_rate * curve(t, training.rounds) for t in range(1, training.rounds + 1))
    return Pace(tuple(rates), one_of("privacy.clip_unit", config.privacy.clip_unit, CLIP_UNITS))


def _method(config: Config) -> str | Planner:
    """The configured method: its name, or where it has parameters its planner with them."""
    privacy = config.privacy
    method = known_method("privacy.method", privacy.method)
    if method.planner is None:
        kind = load_object("privacy.method", privacy.method, config.code)
        return planner_with("privacy.planner", kind, privacy.planner)
    if privacy.planner:
        return planner_with("privacy.planner", type(method.planner), privacy.planner)
    flat = {key: getattr(privacy, key) for key in PLANNER_KEYS if reads(method, key)}
    return planner_with("privacy", type(method.planner), flat) if flat else privacy.method


def _budgets(epsilons: Sequence[float], config: Config) -> tuple[Budget, ...]:
    return tuple(Budget(epsilon, config.privacy.delta) for epsilon in epsilons)


def _read_groups(config: Config) -> tuple[tuple[Group, ...], tuple[ClientBudgets, NDArray[np.intp]] | None]:
    """The groups and, if there is a file of budgets, its clients with the group of each."""
    privacy, clients = config.privacy, config.federation.clients
    whole("training.rounds", config.training.rounds, 1, MAX_ROUNDS)
    probability("privacy.delta", privacy.delta)
    rate("privacy.spending_rate", privacy.spending_rate)
    if clients is not None:
        whole("federation.clients", clients, 1, MAX_CLIENTS)
    file = None
    if privacy.budgets_file is None:
        groups = tuple(_from_table(table, count, privacy) for table, count in _with_counts(config))
    elif privacy.groups:
        raise InputError("privacy.budgets_file and privacy.groups are both given; one of them must go.")
    else:
        may_save = known_method("privacy.method", privacy.method).lets_save
        limits = (config.training.rounds, privacy.spending_rate) if may_save else ()
        found = read_clients(privacy.budgets_file, *limits)
        groups, member = bucket(found, privacy.budget_levels, privacy.delta)
        file = found, member
        if clients not in (None, member.size):
            raise InputError(
                f"federation.clients = {clients} must be the number of clients in the file, {member.size}."
            )
    groups = tuple(_with_defaults(group, privacy) for group in groups)
    if one_of("privacy.budgets", privacy.budgets, BUDGETS) == "smallest":
        groups = at_smallest_budget(groups)
    return groups, file


def _with_counts(config: Config) -> list[tuple[GroupTable, int]]:
    """Every group's number of clients: as given, or from shares by largest remainder."""
    tables, clients = config.privacy.groups, config.federation.clients
    if not tables:
        raise InputError("privacy.groups is empty: give [[privacy.groups]] tables, or a budgets_file.")
    for table in tables:
        if (table.share is None) == (table.clients is None):
            raise InputError(f"group {table.name!r}: give either share or clients.")
    counts = [table.clients for table in tables if table.clients is not None]
    shares = [table.share for table in tables if table.share is not None]
    if counts and shares:
        raise InputError("privacy.groups: give a share for every group, or clients for every group, not some of each.")
    if counts:
        if clients not in (None, sum(counts)):
            raise InputError(f"federation.clients = {clients} must be the sum of the groups' clients, {sum(counts)}.")
        return list(zip(tables, counts, strict=True))
    if clients is None:
        raise InputError("federation.clients is missing: groups given by share need the number of all clients.")
    for table in tables:
        rate(f"group {table.name!r}: share", table.share or 0.0)
    if abs(sum(shares) - 1.0) > 1e-6:
        raise InputError(f"privacy.groups: the shares sum to {sum(shares):g}; they must sum to 1.")
    split = split_clients(clients, shares)
    for table, count in zip(tables, split, strict=True):
        if count == 0:
            raise InputError(f"group {table.name!r}: share = {table.share} of {clients} clients is nobody.")
    return list(zip(tables, split, strict=True))


def _from_table(table: GroupTable, clients: int, privacy: Privacy) -> Group:
    try:
        budget = Budget(table.epsilon, privacy.delta)
    except InputError as error:
        raise InputError(f"group {table.name!r}: {error}") from None
    return Group(table.name, clients, budget, table.saving_rate, table.transition)


def _with_defaults(group: Group, privacy: Privacy) -> Group:
    """What a group leaves open, [privacy] may say for all."""
    return replace(
        group,
        saving_rate=privacy.saving_rate if group.saving_rate is None else group.saving_rate,
        transition=privacy.transition if group.transition is None else group.transition,
    )
