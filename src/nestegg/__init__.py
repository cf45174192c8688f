"""Federated learning in which every client has its own privacy budget and decides when to spend it."""

from typing import TYPE_CHECKING, Any

from nestegg.accounting import Charge
from nestegg.errors import BudgetError, InputError, StoppedError, VerificationError
from nestegg.planning import Budget, Group, GroupPlan, Plan, load_plan, plan, save_plan

if TYPE_CHECKING:
    from nestegg.ledger import Ledger
    from nestegg.training import AdaptiveClipping, LocalTraining, Mechanics, RoundReport, train

__all__ = [
    "AdaptiveClipping",
    "Budget",
    "BudgetError",
    "Charge",
    "Group",
    "GroupPlan",
    "InputError",
    "Ledger",
    "LocalTraining",
    "Mechanics",
    "Plan",
    "RoundReport",
    "StoppedError",
    "VerificationError",
    "load_plan",
    "plan",
    "save_plan",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import torch only when training is asked for, and databases only with the ledger: plans do without them."""
    if name == "Ledger":
        from nestegg.ledger import Ledger

        return Ledger
    if name in ("AdaptiveClipping", "LocalTraining", "Mechanics", "RoundReport", "train"):
        from nestegg import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
