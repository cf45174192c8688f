"""A draft to take away: a configuration, a plan, Python, and charts. What others rely on is judged first."""

from __future__ import annotations

import json
from collections.abc import Callable

import tomli_w

from nestegg.configuration.config import to_toml
from nestegg.planning import Plan
from nestegg.report.charts import definition_of
from nestegg.studio.answers import charts, judged_plan, methods_chart, plan_of
from nestegg.studio.draft import Draft

_PLANNERS = {
    "optimal": "nestegg.Optimal(memory={memory!r})",
    "idp-fedavg": '"idp-fedavg"',
    "dp-fedavg": '"dp-fedavg"',
    "exact": '"spend-as-you-go"',
    "paper": 'nestegg.SpendAsYouGo("paper")',
}


def as_toml(draft: Draft, goes_on: Callable[[], None] = lambda: None) -> str:
    """Return a configuration that `nestegg plan` and `nestegg run` read, once its plan is judged."""
    plan = judged_plan(draft, goes_on)
    head = f"# {plan.title}: {_verdict(plan)}\n# Plan {plan.digest}\n\n"
    return head + tomli_w.dumps(to_toml(draft.config()))


def as_plan(draft: Draft, goes_on: Callable[[], None] = lambda: None) -> str:
    """Return a plan file, judged."""
    return json.dumps(judged_plan(draft, goes_on).to_dict(), indent=1, allow_nan=False) + "\n"


def as_python(draft: Draft) -> str:
    """Return Python that makes the plan."""
    config = draft.config()
    saves = config.privacy.saving_rate is not None
    saving = f", saving_rate={config.privacy.saving_rate!r}, transition={config.privacy.transition}" if saves else ""
    budget = "nestegg.Budget({epsilon!r}, {delta!r})"
    rows = "".join(
        f"    nestegg.Group({one.name!r}, {one.clients}, "
        f"{budget.format(epsilon=one.epsilon, delta=draft.delta)}{saving}),\n"
        for one in draft.groups
    )
    first, last = config.training.learning_rate, draft.rounds
    rates = f"    local=[{first!r} * {draft.curve}(t, {last}) for t in range(1, {last} + 1)],\n"
    return (
        f"import nestegg\nfrom nestegg.planning.curves import {draft.curve}\n\n"
        f"groups = [\n{rows}]\nplan = nestegg.plan(\n    groups,\n    rounds={draft.rounds},\n"
        f"    method={_PLANNERS[draft.method].format(memory=draft.memory)},\n"
        f'    accountant="{config.privacy.accountant}",\n    spending_rate={draft.rate!r},\n'
        f"    clip_norm={draft.clip!r},\n{rates})\nplan.verify()\n"
        f'assert plan.digest == "{plan_of(draft).digest}"\n'
    )


def as_picture(draft: Draft, name: str, kind: str) -> str | bytes:
    """Return a chart as SVG or PNG."""
    import vl_convert

    definition = definition_of(methods_chart(draft) if name == "methods" else charts(draft)[name])
    if kind == "svg":
        return vl_convert.vegalite_to_svg(definition)
    return vl_convert.vegalite_to_png(definition, scale=2)


def _verdict(plan: Plan) -> str:
    largest = max((row.epsilon_spent_pld or 0.0) / row.group.budget.epsilon for row in plan.groups)
    return f"by a second accountant nobody spends more than {min(largest, 1.0):.2%} of the budget."
