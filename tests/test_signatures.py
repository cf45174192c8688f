"""What users call: at most seven parameters, by name beyond two, with the same defaults as a configuration file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest

import nestegg
import nestegg.callbacks
import nestegg.data
import nestegg.flower
from nestegg.configuration.config import Adaptive, Privacy, Side, Training
from nestegg.planning.registry import METHODS
from nestegg.schema import Section

# Values that are made by us and only read by users: their constructors are nobody's to call.
MADE = {"GroupPlan", "Plan", "RoundReport", "State"}
# As Flower calls them.
FLOWERS = {"nestegg.flower.PlannedStrategy.start", "nestegg.flower.GroupAccountant.would_exceed"}


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function, constructor and method that users call, by name."""
    for room in (nestegg, nestegg.data, nestegg.callbacks, nestegg.flower):
        for name in room.__all__:
            one = getattr(room, name)
            if inspect.isclass(one) and not issubclass(one, Exception):
                if name not in MADE:
                    yield f"{room.__name__}.{name}", one
                for method, function in vars(one).items():
                    if inspect.isfunction(function) and not method.startswith("_"):
                        yield f"{room.__name__}.{name}.{method}", function
            elif inspect.isfunction(one):
                yield f"{room.__name__}.{name}", one


CALLS = dict(public())


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_short(name: str) -> None:
    parameters = [one for one in inspect.signature(CALLS[name]).parameters.values() if one.name != "self"]
    assert len(parameters) <= 7
    is_value = is_dataclass(CALLS[name]) or hasattr(CALLS[name], "_fields")  # whose fields have an order of their own
    by_position = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    optional = [one.name for one in by_position if one.default is not one.empty]
    assert is_value or name in FLOWERS or len(by_position) <= 2 or not optional


def defaults_of(call: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of a function, or of a value's fields."""
    if is_dataclass(call):
        made = {one.name: one.default_factory() for one in fields(call) if one.default_factory is not MISSING}
        return made | {one.name: one.default for one in fields(call) if one.default is not MISSING}
    return {
        one.name: one.default for one in inspect.signature(call).parameters.values() if one.default is not one.empty
    }


@pytest.mark.parametrize(
    ("call", "section", "names"),
    [
        (nestegg.LocalTraining, Training, {"epochs": "local_epochs"}),
        (nestegg.Performance, Training, {}),
        (nestegg.Randomness, Training, {}),
        (nestegg.Mechanics, Privacy, {}),
        (nestegg.AdaptiveClipping, Adaptive, {}),
        (nestegg.SideStatistics, Side, {}),
        (nestegg.Budget, Privacy, {}),
        (nestegg.plan, Privacy, {}),
    ],
)
def test_python_and_configuration_files_have_the_same_defaults(
    call: Callable[..., Any], section: type[Section], names: dict[str, str]
) -> None:
    known = {name: field.default for name, field in section.model_fields.items()}
    shared = {name: value for name, value in defaults_of(call).items() if names.get(name, name) in known}
    for other in ("adaptive", "side", "loss"):  # tables of their own, and a function by its name
        shared.pop(other, None)
    if call is nestegg.plan:  # left open, they are those of the method
        shared |= {"accountant": METHODS["spend-as-you-go"].accountant_at(0.9), "spending_rate": 0.9}
        del shared["method"]  # whose default follows from the groups, and in files from their format
    assert shared
    assert shared == {name: known[names.get(name, name)] for name in shared}
