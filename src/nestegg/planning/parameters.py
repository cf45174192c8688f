"""A planner's parameters as data: JSON values in configurations and plan files, typed by the planner's own fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast, get_type_hints

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from nestegg.checks import suggestion
from nestegg.errors import InputError, reason
from nestegg.planning.planners import Planner


def parameters_of(name: str, planner: Planner) -> dict[str, Any]:
    """Return a planner's own values; lists for tuples, as JSON has them.

    Raises:
        InputError: a value is nothing that JSON knows, so that no plan file could say how the plan was made.
    """
    values = {field.name: getattr(planner, field.name) for field in fields(cast(Any, planner)) if field.init}
    try:
        known: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: its parameters must be finite numbers, words, or lists of them: {error}.") from None
    return known


def check_parameters(source: str, method: str, parameters: Mapping[str, Any], *, has_any: bool) -> None:
    """Refuse parameters that are none, or that belong to a method of ours, whose rows say everything."""
    if not has_any:
        if parameters:
            raise InputError(f"{source}.parameters must be empty where {source}.method = {method!r}.")
        return
    try:
        json.dumps(parameters, allow_nan=False)
        sound = isinstance(parameters, Mapping) and all(isinstance(key, str) for key in parameters)
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise InputError(f"{source}.parameters must be names and JSON values.")


def planner_with(field: str, kind: Any, parameters: Mapping[str, Any]) -> Planner:
    """Return the planner of a kind that has these parameters.

    Args:
        field: where they were given; errors name it with the parameter.
        kind: a planner's class, somebody else's perhaps.
        parameters: by name, as TOML or JSON has them.
    """
    if not isinstance(kind, type) or not is_dataclass(kind) or not callable(getattr(kind, "schedule", None)):
        raise InputError(f"{field}: {getattr(kind, '__name__', kind)!r} must be a dataclass with schedule(setting).")
    known = {one.name: one for one in fields(kind) if one.init}
    try:
        hints = get_type_hints(kind)
    except Exception:  # annotations that only a type checker can resolve
        hints = {}
    for name in parameters:
        if name not in known:
            raise InputError(f"{field}.{name} is not a known key.{suggestion(name, known)}")
    for name, one in known.items():
        if name not in parameters and one.default is MISSING and one.default_factory is MISSING:
            raise InputError(f"{field}.{name} is missing.")
    typed = {name: _typed(f"{field}.{name}", hints.get(name, Any), value) for name, value in parameters.items()}
    try:
        return cast(Planner, kind(**typed))
    except InputError as error:
        raise InputError(f"{field}: {error}") from None
    except Exception as error:  # a planner that checks its own parameters may say so in any way
        raise InputError(f"{field}: {reason(error)}.") from error


def _typed(field: str, hint: Any, value: Any) -> Any:
    """A value as the annotation wants it; numbers are not words, and lists may be tuples."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except PydanticSchemaGenerationError:  # a type of somebody else, which only the planner can judge
        return value
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except TypeError as error:
        raise InputError(f"{field} = {value!r}: {error}.") from None
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise InputError(f"{field} = {value!r}: {said[0].lower()}{said[1:]}.") from None
