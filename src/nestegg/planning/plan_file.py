"""Plans on disk: JSON that is written whole or not at all, and read as if a stranger had written it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from pydantic import Field

from nestegg.accounting import MIN_NOISE
from nestegg.checks import one_of
from nestegg.errors import InputError, VerificationError
from nestegg.files import write_atomically
from nestegg.planning.accounts import ACCOUNTANTS, check_orders
from nestegg.planning.budget import Budget, Group, check_federation, checked_charges
from nestegg.planning.parameters import check_parameters
from nestegg.planning.plan import FORMAT, GroupPlan, Plan
from nestegg.planning.planners import COMPOSITIONS
from nestegg.planning.registry import known_method
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
    parameters: dict[str, Any] = Field(default_factory=dict)
    digest: str
    note: str | None = None  # on the run it is for, not on the plan
    exposure: list[Any] = Field(default_factory=list)  # what `nestegg plan --json` finds about a plan, no part of it
    remarks: list[str] = Field(default_factory=list)  # likewise


def save_plan(plan: Plan, path: Path | str, *, note: str | None = None) -> None:
    """Write a plan: to a temporary file beside it first, then by an atomic rename.

    A note is kept beside the plan and is no part of it.
    """
    content = plan.to_dict() if note is None else {**plan.to_dict(), "note": note}
    write_atomically(Path(path), json.dumps(content, allow_nan=False) + "\n")


def load_plan(path: Path | str) -> Plan:
    """Read a plan that `save_plan` wrote, or the one in the terms of a run on Flower.

    Raises:
        InputError: the file is missing, damaged or not a plan.
        VerificationError: its content is not what its digest says, so it was changed after it was made.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except IsADirectoryError:
        name = "terms.json" if (Path(path) / "terms.json").is_file() else "plan.json"
        raise InputError(f"{path} is a folder; the plan of a run is its file {name}.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    return parse_plan(_in_terms(text), str(path))


def _in_terms(text: str) -> str:
    """The plan in terms, which hold it as a text; anything else as it is."""
    try:
        content = json.loads(text)
        is_terms = str(content["format"]).startswith("nestegg-terms/") and isinstance(content["plan"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
    return content["plan"] if is_terms else text


def parse_plan(text: str, source: str) -> Plan:
    """A plan from its JSON; errors are those of `load_plan` and name the source."""
    try:
        content = json.loads(text, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{source} is not a complete JSON file, as nestegg plan --out PLAN.json saves a plan: {error}."
        ) from None
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


def _to_plan(record: _PlanRecord, source: str) -> Plan:
    has_any = known_method(f"{source}: method", record.method).has_parameters
    check_parameters(source, record.method, record.parameters, has_any=has_any)
    one_of(f"{source}: composition", record.composition, COMPOSITIONS)
    one_of(f"{source}: accountant", record.accountant, ACCOUNTANTS)
    check_orders(f"{source}: orders", record.accountant, record.orders)
    if any(len(getattr(record, name)) != record.rounds for name in ("mean_sampling_rate", "round_noise_multiplier")):
        raise InputError(f"{source}: rounds = {record.rounds} must be the length of every row.")
    try:
        groups = tuple(_to_group_plan(row, record, source) for row in record.groups)
        check_federation([row.group for row in groups], record.rounds, record.spending_rate)
    except InputError as error:
        raise InputError(f"{source}: {str(error).removeprefix(f'{source}: ')}") from None
    return Plan(
        method=record.method,
        composition=record.composition,
        accountant=record.accountant,
        spending_rate=record.spending_rate,
        clip_norm=_infinite_if_none(record.clip_norm),
        orders=tuple(record.orders),
        groups=groups,
        parameters=record.parameters,
    )


def _to_group_plan(row: _GroupRecord, record: _PlanRecord, source: str) -> GroupPlan:
    where = f"{source}: group {row.name!r}"
    for name in ("sampling_rate", "noise_multiplier", "clip_norm", "epsilon_spent"):
        values = getattr(row, name)
        if len(values) != record.rounds:
            raise InputError(f"{where}: {name} has {len(values)} values, rounds = {record.rounds}.")
        if any(value is not None and not 0.0 <= value < math.inf for value in values):
            raise InputError(f"{where}: {name} must not be negative or infinite.")
    if any(rate > 1.0 for rate in row.sampling_rate):
        raise InputError(f"{where}: sampling_rate must not be above 1.")
    if any(0.0 < noise < MIN_NOISE for noise in row.noise_multiplier):
        raise InputError(f"{where}: noise_multiplier must be at least {MIN_NOISE:g}, or 0 for none.")
    spent = checked_charges(f"{where}: already_spent", row.already_spent)
    budget = Budget(row.epsilon, record.delta)
    return GroupPlan(
        group=Group(row.name, row.clients, budget, row.saving_rate, row.transition, already_spent=spent),
        sampling_rate=tuple(row.sampling_rate),
        noise_multiplier=tuple(row.noise_multiplier),
        clip_norm=tuple(map(_infinite_if_none, row.clip_norm)),
        epsilon_spent=tuple(map(_infinite_if_none, row.epsilon_spent)),
        epsilon_spent_pld=row.epsilon_spent_pld,
    )


def _infinite_if_none(value: float | None) -> float:
    return math.inf if value is None else value


def _no_constants(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")
