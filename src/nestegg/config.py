"""The configuration file: one TOML for every command, typed, with an error that points at the field."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from nestegg.checks import MAX_CLIENTS, MAX_ROUNDS, one_of, positive, probability, rate, whole
from nestegg.errors import InputError
from nestegg.planning import Budget, Group, Plan, at_smallest_budget, plan, split_clients
from nestegg.planning.clients import bucket, read_clients
from nestegg.schema import Section, read

BUDGETS = ("individual", "smallest")
# Keys that only one method reads; with any other they are a mistake.
_OWN_KEYS = {"shape": "shaped", "end_ratio": "shaped", "adaptive": "adaptive-clipping"}


class Federation(Section):
    """Who takes part, with what data."""

    dataset: str = "digits"
    data: str | None = None
    clients: int | None = None
    partition: str = "dirichlet"
    dirichlet: float = 0.1


class Model(Section):
    """What is trained; by default the dataset's own network."""

    name: str | None = None


class Training(Section):
    """How clients train, and for how long."""

    rounds: int = 25
    local_epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.9
    schedule: str = "cosine"
    seed: int = 0
    reproducible: bool = False
    precision: str = "fp32"
    engine: str = "auto"
    device: str = "cpu"


class GroupTable(Section):
    """One budget and the clients that share it: a share of all clients, or a number of them."""

    name: str
    epsilon: float
    share: float | None = None
    clients: int | None = None
    saving_rate: float | None = None
    transition: int | None = None


class Adaptive(Section):
    """Parameters of the method adaptive-clipping."""

    quantile: float = 0.5
    step: float = 0.2
    bit_noise: float | None = None
    server_rate: float = 1.0
    server_momentum: float = 0.0


class Privacy(Section):
    """Budgets, and the method that spends them."""

    method: str = "spend-as-you-go"
    composition: str = "exact"
    accountant: str = "rdp"
    delta: float = 1e-5
    spending_rate: float = 0.9
    clip_norm: float = 10.0
    clipping: str = "per-layer"
    clip_unit: str = "gradient"
    budgets: str = "individual"
    colluders: int = 0
    shape: str | list[float] = "geometric"
    end_ratio: float = 0.5
    saving_rate: float | None = None
    transition: int | None = None
    groups: list[GroupTable] = Field(default_factory=list)
    budgets_file: str | None = None
    budget_levels: int = 32
    adaptive: Adaptive = Adaptive()


class Config(Section):
    """A whole configuration file."""

    federation: Federation = Federation()
    model: Model = Model()
    training: Training = Training()
    privacy: Privacy


def load_config(path: Path | str) -> Config:
    """Read a configuration; relative paths in it start from its own folder."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}.") from None
    config = read(Config, content, str(path))
    if config.privacy.budgets_file is not None:
        file = str((path.parent / config.privacy.budgets_file).resolve())
        config = config.model_copy(update={"privacy": config.privacy.model_copy(update={"budgets_file": file})})
    if config.federation.data is not None:
        data = str((path.parent / config.federation.data).resolve())
        config = config.model_copy(update={"federation": config.federation.model_copy(update={"data": data})})
    return config


def make_groups(config: Config) -> tuple[Group, ...]:
    """The groups that a configuration describes, each with a number of clients."""
    privacy, clients = config.privacy, config.federation.clients
    whole("training.rounds", config.training.rounds, 1, MAX_ROUNDS)
    probability("privacy.delta", privacy.delta)
    rate("privacy.spending_rate", privacy.spending_rate)
    if clients is not None:
        whole("federation.clients", clients, 1, MAX_CLIENTS)
    if privacy.budgets_file is None:
        groups = tuple(_from_table(table, count, privacy) for table, count in _with_counts(config))
    elif privacy.groups:
        raise InputError("privacy.budgets_file and privacy.groups are both given; one of them must go.")
    else:
        clients_read = read_clients(privacy.budgets_file, config.training.rounds, privacy.spending_rate)
        groups, _ = bucket(clients_read, privacy.budget_levels, privacy.delta)
        total = sum(group.clients for group in groups)
        if clients not in (None, total):
            raise InputError(f"federation.clients = {clients} must be the number of clients in the file, {total}.")
    groups = tuple(_with_defaults(group, privacy) for group in groups)
    return at_smallest_budget(groups) if one_of("privacy.budgets", privacy.budgets, BUDGETS) == "smallest" else groups


def to_toml(config: Config) -> dict[str, Any]:
    """The configuration as a TOML table: without what was not given, and without the keys of other methods."""
    content = config.model_dump(exclude_none=True)
    for key, method in _OWN_KEYS.items():
        if config.privacy.method != method:
            del content["privacy"][key]
    return content


def check_method_keys(config: Config) -> None:
    """Refuse keys that belong to another method than the configured one."""
    for key, method in _OWN_KEYS.items():
        if key in config.privacy.model_fields_set and config.privacy.method != method:
            raise InputError(
                f"privacy.{key} belongs to the method {method!r}; privacy.method = {config.privacy.method!r}."
            )


def make_plan(config: Config, method: str | None = None, composition: str | None = None) -> Plan:
    """The plan that a configuration describes, or would describe with another method or composition."""
    privacy = config.privacy
    return plan(
        make_groups(config),
        config.training.rounds,
        method=method or privacy.method,
        composition=composition or privacy.composition,
        accountant=privacy.accountant,
        spending_rate=privacy.spending_rate,
        clip_norm=positive("privacy.clip_norm", privacy.clip_norm),
        shape=privacy.shape,
        end_ratio=privacy.end_ratio,
    )


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
