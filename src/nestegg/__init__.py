"""Federated learning in which every client has its own privacy budget and decides when to spend it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nestegg.accounting import Charge
    from nestegg.errors import BudgetError, InputError, StoppedError, VerificationError
    from nestegg.ledger import Ledger
    from nestegg.planning import (
        Budget,
        Group,
        GroupPlan,
        Plan,
        Schedule,
        Setting,
        Shaped,
        SpendAsYouGo,
        Uniform,
        grouped,
        load_plan,
        plan,
        save_plan,
    )
    from nestegg.randomness import Randomness
    from nestegg.training import (
        AdaptiveClipping,
        Evaluation,
        Federation,
        LocalTraining,
        Mechanics,
        Performance,
        RoundReport,
        State,
        train,
    )

    __version__: str

__all__ = [
    "AdaptiveClipping",
    "Budget",
    "BudgetError",
    "Charge",
    "Evaluation",
    "Federation",
    "Group",
    "GroupPlan",
    "InputError",
    "Ledger",
    "LocalTraining",
    "Mechanics",
    "Performance",
    "Plan",
    "Randomness",
    "RoundReport",
    "Schedule",
    "Setting",
    "Shaped",
    "SpendAsYouGo",
    "State",
    "StoppedError",
    "Uniform",
    "VerificationError",
    "grouped",
    "load_plan",
    "plan",
    "save_plan",
    "train",
]

# Where names are at home. They are imported when asked for: plans do without torch and databases.
_HOMES = {
    "accounting": ("Charge",),
    "errors": ("BudgetError", "InputError", "StoppedError", "VerificationError"),
    "ledger": ("Ledger",),
    "planning": (
        *("Budget", "Group", "GroupPlan", "Plan", "grouped", "load_plan", "plan", "save_plan"),
        *("Schedule", "Setting", "Shaped", "SpendAsYouGo", "Uniform"),
    ),
    "randomness": ("Randomness",),
    "training": (
        *("AdaptiveClipping", "Evaluation", "Federation", "LocalTraining", "Mechanics", "Performance"),
        *("RoundReport", "State", "train"),
    ),
}
_ROOMS = ("callbacks", "data")  # that users call by name
_EXTRAS = {"ledger": ("the ledger", "ledger"), "randomness": ("training", "train"), "training": ("training", "train")}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        return _version()
    if name in _HOMES or name in _ROOMS:
        return import_module(f"nestegg.{name}")
    for room, names in _HOMES.items():
        if name in names:
            if room in _EXTRAS:
                from nestegg.extras import needs

                needs(*_EXTRAS[room])
            return getattr(import_module(f"nestegg.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    """The installed distribution's version."""
    from importlib.metadata import PackageNotFoundError, version

    from nestegg.extras import DISTRIBUTION

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from its sources
        return "0+unknown"
