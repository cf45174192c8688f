"""What the plan page shows of a draft: the plan at once, other methods beside it, and on request a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import altair as alt
import numpy as np
from altair.utils.schemapi import debug_mode

from nestegg.configuration.participants import make_plan, pace_of_config
from nestegg.planning import LABELS, Exposure, GroupPlan, Plan, epsilon_text, exposures, judged, remarks
from nestegg.planning.certainty import certainty, certainty_in_words
from nestegg.planning.curves import Pace
from nestegg.planning.plan import finite_or_none
from nestegg.planning.reaching import assumed_memory, noise_to_signal, reaching_noise
from nestegg.planning.registry import RIVALS
from nestegg.report.charts import definition_of, noise_chart, sampling_chart
from nestegg.report.gist import gist
from nestegg.report.plan_chart import effect_panel, noise_panel, spending_panel
from nestegg.studio.draft import UNIFORM, Draft


@lru_cache(maxsize=256)
def plan_of(draft: Draft, method: str | None = None) -> Plan:
    """Return the plan of a draft, or of the same with another method."""
    return make_plan(draft.config(method))


def answer(draft: Draft) -> dict[str, Any]:
    """Return what follows a slider: promises of all groups, noise beside signal, and charts."""
    plan, pace = plan_of(draft), pace_of_config(draft.config())
    return {
        "accountant": LABELS[plan.accountant],
        "clients": plan.clients,
        "digest": plan.digest,
        "ratio": noise_to_signal(plan, draft.parameters, pace),
        "noise": _relative(plan, plan_of(draft, UNIFORM), pace, plan),
        "groups": [_group(one) for one in exposures(plan, draft.colluders)],
        "remarks": remarks(plan),
        "charts": {name: _live(chart) for name, chart in charts(draft, budgets=False).items()},
    }


def charts(draft: Draft, *, budgets: bool = True) -> dict[str, alt.Chart]:
    """Return the charts of a draft that follow a slider, by name; with or without ε in their legends."""
    plan, pace = plan_of(draft), pace_of_config(draft.config())
    with debug_mode(False):  # these charts are as tests know them: checking each would take longer than planning
        return {
            "spending": spending_panel(plan, plan_of(draft, UNIFORM), budgets=budgets),
            "noise": noise_chart(plan, budgets=budgets),
            "sampling": sampling_chart(plan, budgets=budgets),
            "effect": effect_panel(plan, pace),
        }


def rivals(draft: Draft, goes_on: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return other methods beside the draft's own: the noise that reaches the model, relative to uniform spending.

    Args:
        draft: with its own method among them.
        goes_on: is called before each plan; what it raises ends the work.
    """
    plans = dict(_rivals(draft, goes_on))
    plan, pace = plan_of(draft), pace_of_config(draft.config())
    return {
        "methods": [
            {
                "name": name,
                "noise": _relative(one, plans[UNIFORM], pace, plan),
                "ratio": noise_to_signal(one, draft.parameters, pace, assumed_memory(plan, pace)[0]),
                "chosen": name == draft.method,
            }
            for name, one in plans.items()
        ],
        "memory": assumed_memory(plan, pace)[1],
        "charts": {"methods": _live(methods_chart(draft, plans))},
    }


def methods_chart(draft: Draft, plans: dict[str, Plan] | None = None) -> alt.Chart:
    """Return the chart of noise in the model, round by round, by all methods."""
    plan = plan_of(draft)
    return noise_panel(plan, plans or dict(_rivals(draft)), pace_of_config(draft.config()))


def verdict(draft: Draft, goes_on: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Return what the second accountant says of every group.

    Raises:
        VerificationError: the plan does not hold what it promises.
    """
    plan = judged_plan(draft, goes_on)
    return {
        "digest": plan.digest,
        "groups": [
            {
                "name": row.group.name,
                "epsilon": row.epsilon_spent[-1],
                "pld": row.epsilon_spent_pld,
                "right": (right := certainty(row, by_pld=True)),
                "words": certainty_in_words(right),
            }
            for row in plan.groups
        ],
    }


def judged_plan(draft: Draft, goes_on: Callable[[], None] = lambda: None) -> Plan:
    """Return the plan with the verdict of the second accountant in it."""

    def tell(row: GroupPlan) -> None:
        goes_on()

    return judged(plan_of(draft), tell)


def _live(chart: alt.Chart) -> dict[str, Any]:
    """A chart whose rows come apart from it: while only they change, the page keeps its drawing."""
    definition = definition_of(chart)
    rows = definition["data"]["values"]
    return {"definition": {**definition, "data": {"name": "rows"}}, "rows": rows, "gist": gist(definition)}


def _rivals(draft: Draft, goes_on: Callable[[], None] = lambda: None) -> Iterator[tuple[str, Plan]]:
    for name in dict.fromkeys((*RIVALS, draft.method)):
        goes_on()
        yield name, plan_of(draft, name)


def _relative(plan: Plan, uniform: Plan, pace: Pace, by: Plan) -> float:
    """The standard deviation of noise in the final model beside that of uniform spending."""
    kept = assumed_memory(by, pace)[0]
    ours, even = (reaching_noise(one, pace, kept).sum() for one in (plan, uniform))
    return float(np.sqrt(ours / even))


def _group(exposed: Exposure) -> dict[str, Any]:
    row = exposed.row
    right = certainty(row)
    return {
        "name": row.group.name,
        "clients": row.group.clients,
        "budget": row.group.budget.epsilon,
        "epsilon": row.epsilon_spent[-1],
        "right": right,
        "words": certainty_in_words(right),
        "sampled": epsilon_text(exposed.sampled),
        "colluding": {str(k): epsilon_text(value) for k, value in exposed.colluding.items()},
        "noise": [row.noise_multiplier[0], row.noise_multiplier[-1]],
        "clip": [finite_or_none(row.clip_norm[0]), finite_or_none(row.clip_norm[-1])],
    }
