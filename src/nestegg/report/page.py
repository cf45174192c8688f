"""The page of a run: one file, no network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from altair.utils.schemapi import debug_mode

from nestegg.configuration.description import CONFIG, RUN
from nestegg.extras import installed_version
from nestegg.planning import LABELS, Plan
from nestegg.report.audit_page import kept_audit, with_audit
from nestegg.report.charts import (
    PALETTE,
    Picture,
    chart_files,
    draw_charts,
    label_chart,
    lines,
    noise_chart,
    sampling_chart,
    spending_chart,
)
from nestegg.report.frame import Part, facts, make_page
from nestegg.report.markup import as_html
from nestegg.report.pages import PageContent
from nestegg.report.promises import promises, spent
from nestegg.report.run_charts import REACH, clip_norm_chart, quality_charts, told_last
from nestegg.report.scripts import chart_scripts

_ACCOUNT = {
    "epsilon": "budget ε",
    "epsilon_earlier": "spent in other runs",
    "epsilon_here": "spent here",
    "epsilon_spent": "together",
    "epsilon_left": "left",
}
_HOW_LEARNT = "<p>Learnt from noisy bits, which say of each update whether it was below its norm.</p>"
_OF_CHARTS = "<p>ε beside a group's name is its budget.</p>"


@debug_mode(False)  # charts of ours are right by tests; checking takes half as long again as making them
def make_report(content: PageContent, *, as_files: bool = False) -> dict[str, str | bytes]:
    """Return the files of a run's page by name: `report.html`, and its charts as PNG and SVG files if asked for."""
    folder, plan, rounds, summary = content.folder, content.plan, content.rounds, content.summary
    charts = quality_charts(rounds)
    if plan.about.learns_clip_norm or any("below" in line.get("side", {}) for line in rounds):
        charts |= clip_norm_chart(rounds, content.clip_unit)
    charts |= _plan_charts(plan)
    if content.labels is not None:
        charts["simulation-only-labels"] = label_chart(content.labels)
    with _drawing(charts, summary.get("note")) as drawing:
        said = promises(plan, summary["rounds"], summary.get("colluders", 0))
        pictures = drawing.result()
    page = run_page(plan, summary, pictures, told_last(rounds), said=said, configuration=shown_configuration(folder))
    audit = kept_audit(folder)
    files = dict(chart_files(pictures)) if as_files else {}
    return {**files, "report.html": with_audit(page, audit) if audit else page}


@debug_mode(False)
def get_ready(plan: Plan | None, note: str | None = None) -> None:
    """Import and start what pages are made with; if a plan is known, draw its charts and judge it.

    Both are remembered for the page of a run by this plan, with this note.
    """
    charts = {} if plan is None else _plan_charts(plan)
    with _drawing(charts or {"nothing": lines([], "none", "none", "nothing")}, note):
        if plan is None:
            import_module("dp_accounting")
        else:
            promises(plan, plan.rounds)
        chart_scripts()


@contextmanager
def _drawing(charts: Mapping[str, alt.TopLevelMixin], note: str | None) -> Iterator[Future[dict[str, Picture]]]:
    """Charts being drawn while a plan is judged: both take about as long, and drawing leaves Python alone."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(draw_charts, charts, note)


def _plan_charts(plan: Plan) -> dict[str, alt.TopLevelMixin]:
    """Charts that follow from the plan alone; none without noise."""
    if not plan.is_private:
        return {}
    return {"spending": spending_chart(plan), "sampling": sampling_chart(plan), "noise": noise_chart(plan)}


def run_page(
    plan: Plan,
    summary: dict[str, Any],
    pictures: dict[str, Picture],
    told: str | None,
    *,
    said: str,
    configuration: str = "",
) -> str:
    """Return the page: summary, promises, charts, accounts and the plan's table.

    `told` is the accuracy that clients say, if they do, and `said` is what is promised.
    """
    measured = [name for name in ("accuracy", "loss") if name in pictures]
    title, shown = " and ".join(measured).capitalize(), [pictures[name] for name in measured]
    parts = [Part(title, _how_measured(summary, told), shown)] if measured else []
    if "clip-norm" in pictures:
        parts += [Part("Clip norm", _HOW_LEARNT, [pictures["clip-norm"]])]
    if "spending" in pictures:
        shown = [pictures[name] for name in ("spending", "sampling", "noise")]
        parts += [Part("What is promised", said), Part("Privacy over the rounds", _OF_CHARTS, shown)]
        parts += [Part("Accounts", _accounts(plan, summary))]
    if "simulation_only_group_accuracy" in summary:
        parts += [Part("Budget groups (simulation only)", _groups(plan, summary))]
    if "simulation-only-labels" in pictures:
        why = "<p>Known because this is a simulation whose results are not for release.</p>"
        parts += [Part("Clients (simulation only)", why, [pictures["simulation-only-labels"]])]
    parts += [Part("The plan", _plan_table(plan))]
    if configuration:
        parts += [Part("Configuration", configuration)]
    return make_page(f"{summary['method']} on {summary['dataset']}", _summary(plan, summary, told), parts)


def _summary(plan: Plan, summary: dict[str, Any], told: str | None) -> str:
    note = f'<p class="note">{escape(summary["note"].capitalize())}.</p>' if "note" in summary else ""
    numbers = [
        _quality(summary, told),
        ("rounds", str(summary["rounds"])),
        ("clients", str(plan.clients)),
        _largest(plan, summary["rounds"]),
    ]
    how = (
        f"Model {summary['model']}, seed {summary['seed']}, δ = {plan.delta:g}, {plan.composition} composition, "
        f"ε by {LABELS[plan.accountant]}. {datetime.now(UTC):%Y-%m-%d}, nestegg {installed_version()}, "
        f"torch {version('torch')}."
    )
    stopped = [f"It {summary['stopped']}, and can go on."] if "stopped" in summary else []
    said = "".join(f'<p class="note">{escape(remark)}</p>' for remark in [*stopped, *summary.get("remarks", ())])
    return f'{note}{said}{facts(numbers)}<p class="soft">{escape(how)}</p>'


def _largest(plan: Plan, done: int) -> tuple[str, str]:
    """The ε that somebody has spent, of the group that has spent most."""
    if not plan.is_private:
        return "without noise nothing is promised", "no privacy"
    epsilon, row = max(zip(spent(plan, done), plan.groups, strict=True), key=lambda pair: pair[0])
    return f"the most spent, of a budget of {row.group.budget.epsilon:g}", f"ε = {epsilon:.2f}"


def _quality(summary: dict[str, Any], told: str | None) -> tuple[str, str]:
    """How good the model is: by test data, accuracy where there are classes, else loss; else by what clients say."""
    if summary["final_accuracy"] is not None:
        return "test accuracy", f"{summary['final_accuracy']:.2f} %"
    if (loss := summary.get("final_loss")) is None and told is not None:
        return f"accuracy as clients say, mean of the last {2 * REACH + 1} rounds", told
    return "test loss", "–" if loss is None else f"{loss:.4g}"


def _how_measured(summary: dict[str, Any], told: str | None) -> str:
    """Where a curve of quality comes from."""
    tested = summary["final_accuracy"] is not None or summary["final_loss"] is not None
    said = ["Measured on public test data."] if tested else []
    if told is not None:
        said += [
            "Dots are what clients say of samples that they hold back and never train on: a mean over all clients, in "
            "which larger budgets count for more, with noise that was paid for with the rounds. The band is each dot "
            "± 2 standard deviations of that noise; if only some clients are sampled, chance adds to it. The line is "
            f"the mean of {2 * REACH + 1} rounds around each, of the last ones near the end, of fewer near the start; "
            "rounds with less noise count for more. Clients measure the model that a round begins with, so the dot "
            "stands at the round before. A client that cannot measure counts as 50 %, or half of the largest loss."
        ]
    return f"<p>{' '.join(said)}</p>"


def _groups(plan: Plan, summary: dict[str, Any]) -> str:
    """How good the model is for the clients of each budget group."""
    found = summary["simulation_only_group_accuracy"]
    groups = [row.group for row in plan.groups]
    rows = [(one.name, str(one.clients), f"{one.budget.epsilon:g}", _percent(found.get(one.name))) for one in groups]
    return (
        f"{as_html(('group', 'clients', 'budget ε', 'accuracy'), rows, PALETTE)}<p>Accuracy in percent on data that "
        "the group's own clients held out, which only a simulation may measure.</p>"
    )


def _percent(accuracy: float | None) -> str:
    return "–" if accuracy is None else f"{accuracy:.2f}"


def _accounts(plan: Plan, summary: dict[str, Any]) -> str:
    """What clients' accounts say, in a table where that is more than what the run has spent."""
    groups = summary["groups"]
    rules = escape("; ".join(dict.fromkeys(str(group["account"]) for group in groups)))
    said = (
        f"<p>Accounts: {rules}. Run <code>{escape(str(summary['run']))}</code>. Noise is rounded to a "
        f"grid, on which sums are exact: that costs ε = {summary['epsilon_of_rounding']:.0e} at most.</p>"
    )
    if _agree(plan, summary):
        return f"<p>No other run has charged these clients: their accounts say what the table above says.</p>{said}"
    rows = [(group["name"], *(_epsilon(group[key]) for key in _ACCOUNT)) for group in groups]
    return (
        f"{as_html(('group', *_ACCOUNT.values()), rows, PALETTE)}<p>Of each group's member with the least left. An "
        "account is for life: its budget is for all runs together, and its ε is counted by the account's own rule, so "
        "that it may differ from the run's ε above. ε of several runs do not add up: together they are less.</p>"
        f"{said}"
    )


def _agree(plan: Plan, summary: dict[str, Any]) -> bool:
    """Whether accounts hold nothing but this run, to its budget and by its accountant."""
    ours = zip(summary["groups"], plan.groups, spent(plan, summary["rounds"]), strict=True)
    return all(
        group["epsilon_earlier"] == 0.0
        and group["epsilon"] == row.group.budget.epsilon
        and np.isclose(group["epsilon_spent"], epsilon, rtol=1e-6)
        for group, row, epsilon in ours
    )


def _epsilon(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _plan_table(plan: Plan) -> str:
    heads = ("group", "clients", "rate q", "noise σ, first", "noise σ, last", "clip norm, last")
    rows = [
        (
            row.group.name,
            str(row.group.clients),
            f"{row.sampling_rate[0]:g} → {row.sampling_rate[-1]:g}",
            f"{row.noise_multiplier[0]:.3f}",
            f"{row.noise_multiplier[-1]:.3f}",
            f"{row.clip_norm[-1]:.3f}",
        )
        for row in plan.groups
    ]
    return f"{as_html(heads, rows, PALETTE)}<p>{escape(plan.title)}. Plan <code>{plan.digest}</code>.</p>"


def shown_configuration(folder: Path) -> str:
    """Return the file that describes a run, folded, without passwords.

    A ledger whose URL has the password of a user is refused, but its query may hold that of a key.
    """
    for name in (CONFIG, RUN):
        with suppress(OSError, UnicodeError):
            text = re.sub(r"(password=)[^&\"\s]*", r"\1…", (folder / name).read_text(encoding="utf-8"))
            return (
                f"<details><summary><code>{name}</code></summary>"
                f'<pre tabindex="0" role="region" aria-label="{name}">{escape(text)}</pre></details>'
            )
    return ""
