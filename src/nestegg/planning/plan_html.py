"""A plan as a small table for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from nestegg.planning.accounts import LABELS
from nestegg.planning.plan import GroupPlan, Plan

_HEADS = ("group", "clients", "budget ε", "ε spent", "rate q", "noise σ", "clip norm")
_SHOWN = 32


def plan_html(plan: Plan) -> str:
    """A line a group, with its first and last round, under a sentence that says what plan it is."""
    what = (
        f"{plan.title}: {plan.clients} clients in {len(plan.groups)} groups, "
        f"{plan.rounds} rounds, δ = {plan.delta:g}, ε by {LABELS[plan.accountant]}, digest {plan.digest[:16]}"
    )
    body = "".join(_line("td", _cells(row)) for row in plan.groups[:_SHOWN])
    more = len(plan.groups) - _SHOWN
    rest = f'<tr><td colspan="{len(_HEADS)}">and {more} more groups</td></tr>' if more > 0 else ""
    head = f"<caption>{escape(what)}</caption><thead>{_line('th', _HEADS)}</thead>"
    return f"<table>{head}<tbody>{body}{rest}</tbody></table>"


def _cells(row: GroupPlan) -> Iterable[str]:
    yield row.group.name
    yield str(row.group.clients)
    yield f"{row.group.budget.epsilon:g}"
    yield _number(row.epsilon_spent[-1])
    for values in (row.sampling_rate, row.noise_multiplier, row.clip_norm):
        first, last = _number(values[0]), _number(values[-1])
        yield first if first == last else f"{first} → {last}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"


def _line(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
