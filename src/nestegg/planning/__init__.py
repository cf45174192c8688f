"""From budgets to a plan: groups, planners, the paper's theory, and the judge of every plan."""

from nestegg.planning.budget import Budget, Group, at_smallest_budget, split_clients
from nestegg.planning.consistency import check_plan
from nestegg.planning.exposure import Exposure, epsilon_text, exposures
from nestegg.planning.judge import Verdict, epsilon_by_pld, judged, verify
from nestegg.planning.methods import plan, replan
from nestegg.planning.plan import ACCOUNTANTS, COMPOSITIONS, LABELS, METHODS, GroupPlan, Plan
from nestegg.planning.plan_file import load_plan, parse_plan, save_plan
from nestegg.planning.remarks import remarks
from nestegg.planning.replanning import Standing, replanned
from nestegg.planning.shapes import SHAPES

__all__ = [
    "ACCOUNTANTS",
    "COMPOSITIONS",
    "LABELS",
    "METHODS",
    "SHAPES",
    "Budget",
    "Exposure",
    "Group",
    "GroupPlan",
    "Plan",
    "Standing",
    "Verdict",
    "at_smallest_budget",
    "check_plan",
    "epsilon_by_pld",
    "epsilon_text",
    "exposures",
    "judged",
    "load_plan",
    "parse_plan",
    "plan",
    "remarks",
    "replan",
    "replanned",
    "save_plan",
    "split_clients",
    "verify",
]
