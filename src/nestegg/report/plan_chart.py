"""A plan as a chart, beside spending evenly: which rounds matter, where noise goes, when budgets are spent."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.planning import Plan
from nestegg.planning.curves import Pace
from nestegg.planning.reaching import assumed_memory, reaching_noise
from nestegg.report.charts import LINE_LEGEND, PALETTE, draw_charts, group_label, lines, method_colours

SUFFIXES = (".svg", ".png", ".html")
UNIFORM = "idp-fedavg"
_HEIGHT = 190


def check_chart_file(path: Path) -> None:
    """Refuse a file that no chart can be written to, before anything takes long."""
    one_of("chart: the suffix", path.suffix, SUFFIXES)
    if not path.parent.is_dir():
        raise InputError(f"chart = {str(path)!r}: the folder {str(path.parent)!r} does not exist.")


def plan_chart(plan: Plan, plans: Mapping[str, Plan], pace: Pace) -> alt.TopLevelMixin:
    """Return three panels over the rounds: what noise does, how much there is by each plan, and what is spent.

    Args:
        plan: whose spending is shown.
        plans: by method, for the noise; uniform spending (`UNIFORM`) is among them.
        pace: learning rates of all rounds, and the unit of clip norms.

    Raises:
        InputError: the plan has no noise.
    """
    if not plan.is_private:
        raise InputError(f"chart: method = {plan.method!r} has no noise to draw; any other method has.")
    panels = (effect_panel(plan, pace), noise_panel(plan, plans, pace), spending_panel(plan, plans[UNIFORM]))
    stacked = alt.vconcat(*(panel.properties(height=_HEIGHT) for panel in panels), spacing=28, title=_title(plan))
    chart: alt.TopLevelMixin = stacked.resolve_scale(color="independent", strokeDash="independent")
    return chart


def write_plan_chart(path: Path, plan: Plan, plans: Mapping[str, Plan], pace: Pace) -> None:
    """Write the chart of a plan as SVG, PNG or a page that answers to the mouse, by the file's suffix."""
    check_chart_file(path)
    picture = draw_charts({"plan": plan_chart(plan, plans, pace)})["plan"]
    if path.suffix == ".svg":
        write_atomically(path, picture.svg)
    elif path.suffix == ".png":
        import vl_convert

        write_atomically(path, vl_convert.vegalite_to_png(picture.definition, scale=2))
    else:
        from nestegg.report.frame import Part, make_page

        summary = f"<p>{escape(plan.title)}: {plan.clients} clients, {plan.rounds} rounds, δ = {plan.delta:g}.</p>"
        write_atomically(path, make_page(_title(plan), summary, [Part("The plan", pictures=[picture])]))


def method_name(plan: Plan) -> str:
    """Return how comparisons call the method of a plan; one of somebody else by its label."""
    if plan.about.is_own:
        return plan.about.label
    return plan.composition if plan.method == "spend-as-you-go" else plan.method


def effect_panel(plan: Plan, pace: Pace) -> alt.Chart:
    """a_t = w_t c_t, relative to the largest."""
    kept, by = assumed_memory(plan, pace)
    matters = kept * np.array(pace.clip_scale)
    rows = _rows("effect", matters / matters.max())
    return lines(rows, "effect", "effect, largest = 1", f"What a unit of noise does to the final model, {by}")


def noise_panel(plan: Plan, plans: Mapping[str, Plan], pace: Pace) -> alt.Chart:
    """w_t c_t σ^t / (q^t N) by every plan, in units of the mean of uniform spending."""
    kept, _ = assumed_memory(plan, pace)
    unit = np.sqrt(reaching_noise(plans[UNIFORM], pace, kept)).mean()
    rows = [
        row
        for name, one in plans.items()
        if one.is_private
        for row in _rows("noise", np.sqrt(reaching_noise(one, pace, kept)) / unit, method=_label(name))
    ]
    title = "Noise that reaches the final model, round by round"
    return lines(rows, "noise", "noise, uniform's mean = 1", title, "method", method_colours(plans))


def spending_panel(plan: Plan, uniform: Plan, *, budgets: bool = True) -> alt.Chart:
    """ε so far, a colour for each group, dashed for uniform spending; at most as many groups as there are colours."""
    shown = len(PALETTE)
    both = {_label(UNIFORM): uniform} | {_label(method_name(plan)): plan}
    rows = [
        row
        for schedule, one in both.items()
        for group in one.groups[:shown]
        for row in _rows(
            "spent", group.epsilon_spent, group=group_label(group.group, budgets=budgets), schedule=schedule
        )
    ]
    order = [group_label(row.group, budgets=budgets) for row in plan.groups[:shown]]
    told = ["uniform spending is dashed"] if len(both) > 1 else []
    told += [f"{shown} of {len(plan.groups)} groups"] if len(plan.groups) > shown else []
    title = "; ".join(["When each group spends its budget", *told])
    chart = lines(rows, "spent", "ε spent so far", title, "group")
    dashes = alt.Scale(domain=list(both)[::-1], range=[[1, 0], [6, 3]])
    return chart.encode(
        color=alt.Color(
            "group:N",
            sort=order,
            scale=alt.Scale(domain=order, range=list(PALETTE[: len(order)])),
            legend=alt.Legend(title="group", **LINE_LEGEND),
        ),
        strokeDash=alt.StrokeDash("schedule:N", scale=dashes, legend=None),
        tooltip=[*map(alt.Tooltip, ("group:N", "schedule:N", "round:Q")), alt.Tooltip("spent:Q", format=".4~r")],
    )


def _title(plan: Plan) -> str:
    return f"When to spend: {method_name(plan)}, {plan.clients} clients, {plan.rounds} rounds"


def _rows(field: str, values: Any, **labels: str) -> list[dict[str, Any]]:
    return [{"round": t, field: float(value), **labels} for t, value in enumerate(values, 1)]


def _label(name: str) -> str:
    return f"{name} (uniform)" if name == UNIFORM else name
