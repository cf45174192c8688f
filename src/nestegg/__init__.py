"""Federated learning in which every client has its own privacy budget and decides when to spend it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nestegg.accounting import Charge
    from nestegg.data import Source
    from nestegg.errors import BudgetError, InputError, StoppedError, VerificationError
    from nestegg.ledger import Ledger
    from nestegg.mechanism.randomness import Randomness
    from nestegg.planning import (
        Budget,
        Group,
        GroupPlan,
        Optimal,
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
    from nestegg.runs import run
    from nestegg.runs.comparison import compare
    from nestegg.training import (
        AdaptiveClipping,
        Evaluation,
        Federation,
        LocalTraining,
        Mechanics,
        Performance,
        RoundReport,
        SideStatistics,
        State,
        train,
    )
    from nestegg.training.featured import with_features
    from nestegg.training.influence import Influence, measure_influence
    from nestegg.training.losses import balanced

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
    "Influence",
    "InputError",
    "Ledger",
    "LocalTraining",
    "Mechanics",
    "Optimal",
    "Performance",
    "Plan",
    "Randomness",
    "RoundReport",
    "Schedule",
    "Setting",
    "Shaped",
    "SideStatistics",
    "Source",
    "SpendAsYouGo",
    "State",
    "StoppedError",
    "Uniform",
    "VerificationError",
    "balanced",
    "compare",
    "grouped",
    "load_plan",
    "measure_influence",
    "plan",
    "run",
    "save_plan",
    "train",
    "with_features",
]

# Where names are at home. They are imported when asked for: plans do without torch and databases.
_HOMES: dict[str, tuple[str, ...]] = {
    "accounting": ("Charge",),
    "callbacks": (),
    "runs.comparison": ("compare",),
    "data": ("Source",),
    "errors": ("BudgetError", "InputError", "StoppedError", "VerificationError"),
    "ledger": ("Ledger",),
    "planning": (
        *("Budget", "Group", "GroupPlan", "Plan", "grouped", "load_plan", "plan", "save_plan"),
        *("Optimal", "Schedule", "Setting", "Shaped", "SpendAsYouGo", "Uniform"),
    ),
    "mechanism.randomness": ("Randomness",),
    "runs": ("run",),
    "training": (
        *("AdaptiveClipping", "Evaluation", "Federation", "LocalTraining", "Mechanics", "Performance"),
        *("RoundReport", "SideStatistics", "State", "train"),
    ),
    "training.featured": ("with_features",),
    "training.influence": ("Influence", "measure_influence"),
    "training.losses": ("balanced",),
}
_EXTRAS = {
    "callbacks": ("training", "train"),
    "data": ("clients' data", "train"),
    "runs.comparison": ("a comparison", "train", "ledger", "charts"),
    "ledger": ("the ledger", "ledger"),
    "mechanism.randomness": ("training", "train"),
    "runs": ("a run with a folder", "train", "ledger", "charts"),
    "training": ("training", "train"),
    "training.featured": ("training", "train"),
    "training.influence": ("training", "train"),
    "training.losses": ("training", "train"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from nestegg.extras import installed_version

        return installed_version()
    for room, names in _HOMES.items():
        if name == room or name in names:
            if room in _EXTRAS:
                from nestegg.extras import needs

                needs(*_EXTRAS[room])
            home = import_module(f"nestegg.{room}")
            return home if name == room else getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
