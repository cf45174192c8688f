"""The page of a run: one file, no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.files import write_atomically
from nestegg.planning import Plan
from nestegg.report.charts import accuracy_chart, label_chart, save_charts, spending_chart

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; }
th { text-align: left; } td { text-align: right; } td:first-child { text-align: left; }
.note { background: #fff3cd; padding: .5rem 1rem; border-left: 4px solid #e69f00; }
svg { max-width: 100%; height: auto; }
"""


_ACCOUNT = {
    "epsilon": "budget ε",
    "epsilon_earlier": "spent in other runs",
    "epsilon_here": "spent here",
    "epsilon_spent": "together",
    "epsilon_left": "left",
}


def write_report(
    folder: Path, plan: Plan, rounds: list[dict[str, Any]], summary: dict[str, Any], labels: NDArray[np.int64]
) -> None:
    """Write `report.html` and its charts as PNG into a run's folder."""
    charts = {"accuracy": accuracy_chart(rounds), "labels": label_chart(labels)}
    if plan.method != "fedavg":
        charts["spending"] = spending_chart(plan)
    pictures = save_charts(folder, charts)
    write_atomically(folder / "report.html", make_page(plan, summary, list(pictures.values())))


def make_page(plan: Plan, summary: dict[str, Any], pictures: list[str]) -> str:
    """Summary, charts and the plan's table."""
    title = f"{summary['method']} on {summary['dataset']}"
    note = f'<p class="note">{escape(summary["note"].capitalize())}.</p>' if "note" in summary else ""
    heads = ("group", "clients", "budget ε", "ε spent", "rate q", "noise σ, first", "noise σ, last", "clip norm, last")
    cells = [
        (
            row.group.name,
            str(row.group.clients),
            f"{row.group.budget.epsilon:g}",
            f"{row.epsilon_spent[-1]:.3f}",
            f"{row.sampling_rate[0]:g} → {row.sampling_rate[-1]:g}",
            f"{row.noise_multiplier[0]:.3f}",
            f"{row.noise_multiplier[-1]:.3f}",
            f"{row.clip_norm[-1]:.3f}",
        )
        for row in plan.groups
    ]
    accounts = [
        (group["name"], *(f"{group[key]:.3f}" for key in _ACCOUNT))
        for group in summary["groups"]
        if plan.method != "fedavg"
    ]
    account = (
        f"<h2>Accounts</h2>{_table(('group', *_ACCOUNT.values()), accounts)}<p>Of each group's member with the "
        f"least left, by RDP. Run {escape(str(summary['run']))}. ε of several runs do not add up: "
        "together they are less.</p>"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{note}"
        f"<p>{summary['final_accuracy']:.2f} % test accuracy after {summary['rounds']} rounds with the model "
        f"{escape(str(summary['model']))}, seed {summary['seed']}, δ = {plan.delta:g}, {plan.composition} composition, "
        f"{plan.accountant.upper()} accountant. Accuracy is measured on public test data.</p>"
        f"{''.join(f'<figure>{picture}</figure>' for picture in pictures)}"
        f"{account if accounts else ''}<h2>The plan</h2>{_table(heads, cells)}"
        f"<p>Plan {plan.digest}.</p></body></html>\n"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
