"""From budgets to a plan: groups, planners, the paper's theory, and the judge of every plan."""

from nestegg.planning.accounts import ACCOUNTANTS, LABELS
from nestegg.planning.budget import Budget, Group, at_smallest_budget, split_clients
from nestegg.planning.consistency import check_plan
from nestegg.planning.exposure import Exposure, epsilon_beyond, epsilon_text, exposures
from nestegg.planning.judge import Verdict, check_promises, epsilon_by_pld, judged, verify
from nestegg.planning.levels import grouped
from nestegg.planning.methods import plan
from nestegg.planning.plan import GroupPlan, Plan
from nestegg.planning.plan_file import load_plan, parse_plan, save_plan
from nestegg.planning.planners import COMPOSITIONS, SHAPES, Optimal, Planner, Shaped, SpendAsYouGo, Uniform
from nestegg.planning.registry import COMPARED, METHODS, Method, known_method
from nestegg.planning.remarks import remarks
from nestegg.planning.replanning import Standing, replanned
from nestegg.planning.schedule import Schedule
from nestegg.planning.setting import Setting

__all__ = [
    "ACCOUNTANTS",
    "COMPARED",
    "COMPOSITIONS",
    "LABELS",
    "METHODS",
    "SHAPES",
    "Budget",
    "Exposure",
    "Group",
    "GroupPlan",
    "Method",
    "Optimal",
    "Plan",
    "Planner",
    "Schedule",
    "Setting",
    "Shaped",
    "SpendAsYouGo",
    "Standing",
    "Uniform",
    "Verdict",
    "at_smallest_budget",
    "check_plan",
    "check_promises",
    "epsilon_beyond",
    "epsilon_by_pld",
    "epsilon_text",
    "exposures",
    "grouped",
    "judged",
    "known_method",
    "load_plan",
    "parse_plan",
    "plan",
    "remarks",
    "replanned",
    "save_plan",
    "split_clients",
    "verify",
]
