"""The configuration file: one TOML for every command, typed, with an error that points at the field."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nestegg.checks import MAX_CLIENTS, MAX_ROUNDS, one_of, positive, probability, rate, whole
from nestegg.errors import InputError
from nestegg.planning import Budget, Group, Plan, at_smallest_budget, plan, split_clients
from nestegg.planning.clients import ClientBudgets, bucket, read_clients
from nestegg.schema import Section, read

_FILE_URL = "sqlite:///"
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


class Ledger(Section):
    """Where budgets are kept over many runs; by default every run keeps its own, in its folder."""

    url: str | None = None
    run: str | None = None  # the run's name in the ledger: written into a run's folder, not for people


class Config(Section):
    """A whole configuration file."""

    federation: Federation = Federation()
    model: Model = Model()
    training: Training = Training()
    privacy: Privacy
    ledger: Ledger = Ledger()


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
    here = path.parent.resolve()
    if config.privacy.budgets_file is not None:
        config = changed(config, "privacy", budgets_file=str((here / config.privacy.budgets_file).resolve()))
    if config.federation.data is not None:
        config = changed(config, "federation", data=str((here / config.federation.data).resolve()))
    if (url := config.ledger.url or "").startswith(_FILE_URL):
        config = changed(config, "ledger", url=f"{_FILE_URL}{here / url.removeprefix(_FILE_URL)}")
    return config


def changed(config: Config, section: str, **values: Any) -> Config:
    """The configuration with other values in one of its sections."""
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


class Roster(NamedTuple):
    """Who takes part: groups, and in their order every client's name and own budget."""

    groups: tuple[Group, ...]
    clients: tuple[str, ...]
    budgets: tuple[Budget, ...]


def make_groups(config: Config) -> tuple[Group, ...]:
    """The groups that a configuration describes, each with a number of clients."""
    return _read_groups(config)[0]


def make_roster(config: Config) -> Roster:
    """The groups and everybody in them, by the names in the file of budgets or as client-1, client-2 and so on."""
    groups, file = _read_groups(config)
    if file is None:
        own = [table.epsilon for table, count in _with_counts(config) for _ in range(count)]
        return Roster(groups, tuple(f"client-{i}" for i in range(1, len(own) + 1)), _budgets(own, config))
    clients, member = file
    order = member.argsort(kind="stable")
    names = tuple(clients.client[i] for i in order)
    return Roster(groups, names, _budgets(clients.epsilon[order].tolist(), config))


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
        found = read_clients(privacy.budgets_file, config.training.rounds, privacy.spending_rate)
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


def ledger_url(config: Config, folder: Path) -> str:
    """The ledger of a run in a folder."""
    return config.ledger.url or f"{_FILE_URL}{(folder / 'ledger.db').absolute()}"


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
