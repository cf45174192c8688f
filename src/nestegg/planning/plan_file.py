"""Plans on disk: JSON that is written whole or not at all, and read as if a stranger had written it."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import NoReturn

import numpy as np

from nestegg.accounting import Charge
from nestegg.checks import one_of
from nestegg.errors import InputError, VerificationError
from nestegg.planning.budget import Budget, Group, check_federation
from nestegg.planning.plan import ACCOUNTANTS, COMPOSITIONS, FORMAT, METHODS, GroupPlan, Plan
from nestegg.schema import Section, read


class _GroupRecord(Section):
    name: str
    clients: int
    epsilon: float
    saving_rate: float | None
    transition: int
    sampling_rate: list[float]
    noise_multiplier: list[float]
    clip_norm: list[float | None]
    epsilon_spent: list[float | None]
    epsilon_spent_pld: float | None
    already_spent: list[list[float]]


class _PlanRecord(Section):
    format: str
    method: str
    composition: str
    accountant: str
    delta: float
    rounds: int
    clients: int
    spending_rate: float
    clip_norm: float | None
    orders: list[float]
    mean_sampling_rate: list[float]
    round_noise_multiplier: list[float]
    groups: list[_GroupRecord]
    digest: str


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write a plan: to a temporary file beside it first, then by an atomic rename."""
    write_atomically(Path(path), plan.to_json() + "\n")


def load_plan(path: Path | str) -> Plan:
    """Read a plan that `save_plan` wrote.

    Raises:
        InputError: the file is missing, damaged or not a plan.
        VerificationError: its content is not what its digest says, so it was changed after it was made.
    """
    source = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    try:
        content = json.loads(text, parse_constant=_no_constants)
    except ValueError as error:
        raise InputError(f"{source} is not a complete JSON file: {error}.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{source} is not a plan: its format must be {FORMAT!r}.")
    record = read(_PlanRecord, content, source)
    plan = _to_plan(record, source)
    if plan.digest != record.digest:
        raise VerificationError(f"{source} was changed after it was made: its content does not match its digest.")
    for name in ("mean_sampling_rate", "round_noise_multiplier"):
        if not np.allclose(getattr(record, name), getattr(plan, name), rtol=1e-9, atol=0.0):
            raise VerificationError(f"{source}: {name} does not follow from the groups' rows.")
    return plan


def write_atomically(path: Path, text: str) -> None:
    """The whole text is in the file, durably, or the file is as it was."""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None


def _to_plan(record: _PlanRecord, source: str) -> Plan:
    one_of(f"{source}: method", record.method, METHODS)
    one_of(f"{source}: composition", record.composition, COMPOSITIONS)
    one_of(f"{source}: accountant", record.accountant, ACCOUNTANTS)
    orders = np.array(record.orders)
    if (
        not np.all(orders > 1.0)
        or not np.all(np.diff(orders) > 0.0)
        or (record.accountant == "rdp" and not orders.size)
    ):
        raise InputError(f"{source}: orders must be numbers above 1 that rise.")
    if any(len(getattr(record, name)) != record.rounds for name in ("mean_sampling_rate", "round_noise_multiplier")):
        raise InputError(f"{source}: rounds = {record.rounds} must be the length of every row.")
    groups = tuple(_to_group_plan(row, record, source) for row in record.groups)
    check_federation([row.group for row in groups], record.rounds, record.spending_rate)
    return Plan(
        method=record.method,
        composition=record.composition,
        accountant=record.accountant,
        spending_rate=record.spending_rate,
        clip_norm=_infinite_if_none(record.clip_norm),
        orders=tuple(record.orders),
        groups=groups,
    )


def _to_group_plan(row: _GroupRecord, record: _PlanRecord, source: str) -> GroupPlan:
    where = f"{source}: group {row.name!r}"
    for name in ("sampling_rate", "noise_multiplier", "clip_norm", "epsilon_spent"):
        values = getattr(row, name)
        if len(values) != record.rounds:
            raise InputError(f"{where}: {name} has {len(values)} values, rounds = {record.rounds}.")
        if any(value is not None and value < 0.0 for value in values):
            raise InputError(f"{where}: {name} must not be negative.")
    if any(len(charge) != 3 or min(charge) < 0.0 or charge[2] != int(charge[2]) for charge in row.already_spent):
        raise InputError(f"{where}: already_spent must hold [sampling_rate, noise_multiplier, count] triples.")
    return GroupPlan(
        group=Group(row.name, row.clients, Budget(row.epsilon, record.delta), row.saving_rate, row.transition),
        sampling_rate=tuple(row.sampling_rate),
        noise_multiplier=tuple(row.noise_multiplier),
        clip_norm=tuple(map(_infinite_if_none, row.clip_norm)),
        epsilon_spent=tuple(map(_infinite_if_none, row.epsilon_spent)),
        epsilon_spent_pld=row.epsilon_spent_pld,
        already_spent=tuple(Charge(q, sigma, int(count)) for q, sigma, count in row.already_spent),
    )


def _infinite_if_none(value: float | None) -> float:
    return math.inf if value is None else value


def _no_constants(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")
