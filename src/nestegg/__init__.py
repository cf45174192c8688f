"""Federated learning in which every client has its own privacy budget and decides when to spend it."""

from nestegg.accounting import Charge
from nestegg.errors import InputError, VerificationError
from nestegg.planning import Budget, Group, GroupPlan, Plan, load_plan, plan, save_plan

__all__ = [
    "Budget",
    "Charge",
    "Group",
    "GroupPlan",
    "InputError",
    "Plan",
    "VerificationError",
    "load_plan",
    "plan",
    "save_plan",
]
