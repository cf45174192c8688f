"""The Python interface: public names in parts that belong together, each with its docstring."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from inspect import getdoc, isclass, isfunction
from typing import Any

from mkdocs.exceptions import PluginError

# Public names of nestegg, by what they are for. A name that is missing here fails the build, too.
PARTS = {
    "Plans": (
        *("plan", "Budget", "Group", "grouped", "Plan", "GroupPlan", "Charge"),
        *("save_plan", "load_plan"),
    ),
    "Methods": ("Optimal", "Uniform", "Shaped", "SpendAsYouGo", "Setting", "Schedule"),
    "Training": (
        *("Federation", "LocalTraining", "Mechanics", "Performance", "Evaluation", "Randomness"),
        *("AdaptiveClipping", "SideStatistics", "train", "run", "compare", "RoundReport", "State"),
        *("balanced", "with_features", "measure_influence", "Influence", "Source"),
    ),
    "The ledger": ("Ledger",),
    "Errors": ("InputError", "VerificationError", "StoppedError", "BudgetError"),
}


def api() -> str:
    """Return a directive for every public name of nestegg, which mkdocstrings turns into its documentation."""
    public = import_module("nestegg")
    listed = [name for names in PARTS.values() for name in names]
    if wrong := sorted({*listed} ^ {*public.__all__}):
        raise PluginError(f"nestegg.__all__ and the parts of the Python reference differ in: {', '.join(wrong)}.")
    check_documented(public, listed)
    return "\n".join(f"## {title}\n\n{_directives(public, names)}" for title, names in PARTS.items())


def room(name: str) -> str:
    """Return a directive for every public class and function of a room, but for those that nestegg itself has."""
    module, public = import_module(f"nestegg.{name}"), import_module("nestegg").__all__
    names = [one for one in module.__all__ if callable(getattr(module, one)) and one not in public]
    check_documented(module, names)
    return _directives(module, names)


def check_documented(module: Any, names: Sequence[str]) -> None:
    """Refuse names, and public methods of classes, without a docstring."""
    for name in names:
        value = getattr(module, name)
        inside = vars(value).items() if isclass(value) else ()
        methods = [(f"{name}.{key}", one) for key, one in inside if not key.startswith("_") and _is_method(one)]
        for where, one in [(name, value), *methods]:
            if not getdoc(one):
                raise PluginError(f"{module.__name__}.{where} is public and has no docstring.")


def _is_method(value: Any) -> bool:
    return isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def _directives(module: Any, names: Sequence[str]) -> str:
    return "".join(_directive(f"{module.__name__}.{name}", name, getattr(module, name)) for name in names)


def _directive(shown: str, name: str, value: Any) -> str:
    """Name a thing by its home, where no module of the same name hides it, and show it as users import it."""
    kind = value if isclass(value) or isfunction(value) else type(value)  # of an instance its class says what it is
    return f"::: {kind.__module__}.{kind.__name__}\n    options:\n      heading: {shown}\n      toc_label: {name}\n\n"
