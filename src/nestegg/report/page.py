"""The page of a run: one file, no network."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.files import write_atomically
from nestegg.planning import LABELS, Plan, epsilon_text, exposures
from nestegg.report.audit_page import kept_audit, with_audit
from nestegg.report.charts import (
    PALETTE,
    Picture,
    draw_charts,
    label_chart,
    noise_chart,
    sampling_chart,
    save_charts,
    spending_chart,
)
from nestegg.report.frame import Part, facts, make_page
from nestegg.report.markup import as_html
from nestegg.report.run_charts import REACH, clip_norm_chart, quality_charts, told_last

_GUESSED = 12  # groups whose excess is computed: it takes a moment each
_ACCOUNT = {
    "epsilon": "budget ε",
    "epsilon_earlier": "spent in other runs",
    "epsilon_here": "spent here",
    "epsilon_spent": "together",
    "epsilon_left": "left",
}
_HOW_LEARNT = "<p>Learnt from noisy bits, which say of each update whether it was below its norm.</p>"


def write_report(
    folder: Path,
    plan: Plan,
    rounds: list[dict[str, Any]],
    summary: dict[str, Any],
    *,
    labels: NDArray[np.int64] | None,
    clip_unit: str,
    as_files: bool = False,
) -> None:
    """Write `report.html` into a run's folder; its charts as PNG and SVG files, too, if asked for: that takes long.

    Labels of clients are drawn in simulations only; a run that may be released has none to give.
    """
    private = plan.is_private
    charts = quality_charts(rounds)
    if plan.about.learns_clip_norm or any("below" in line.get("side", {}) for line in rounds):
        charts |= clip_norm_chart(rounds, clip_unit)
    if private:
        charts |= {"spending": spending_chart(plan), "sampling": sampling_chart(plan), "noise": noise_chart(plan)}
    if labels is not None:
        charts["simulation-only-labels"] = label_chart(labels)
    note = summary.get("note")
    pictures = save_charts(folder, charts, note) if as_files else draw_charts(charts, note)
    page, audit = run_page(plan, summary, pictures, told_last(rounds)), kept_audit(folder)
    write_atomically(folder / "report.html", with_audit(page, audit) if audit else page)


def run_page(plan: Plan, summary: dict[str, Any], pictures: dict[str, Picture], told: str | None) -> str:
    """Summary, charts, accounts and the plan's table; `told` is the accuracy that clients say, if they do."""
    measured = [name for name in ("accuracy", "loss") if name in pictures]
    title, shown = " and ".join(measured).capitalize(), [pictures[name] for name in measured]
    parts = [Part(title, _how_measured(summary, told), shown)] if measured else []
    if "clip-norm" in pictures:
        parts += [Part("Clip norm", _HOW_LEARNT, [pictures["clip-norm"]])]
    if "spending" in pictures:
        shown = [pictures[name] for name in ("spending", "sampling", "noise")]
        parts += [Part("Privacy", "", shown), Part("Accounts", _accounts(plan, summary))]
    if "simulation_only_group_accuracy" in summary:
        parts += [Part("Budget groups (simulation only)", _groups(plan, summary))]
    if "simulation-only-labels" in pictures:
        why = "<p>Known because this is a simulation whose results are not for release.</p>"
        parts += [Part("Clients (simulation only)", why, [pictures["simulation-only-labels"]])]
    parts += [Part("The plan", _plan_table(plan, summary.get("colluders", 0)))]
    return make_page(f"{summary['method']} on {summary['dataset']}", _summary(plan, summary, told), parts)


def _summary(plan: Plan, summary: dict[str, Any], told: str | None) -> str:
    note = f'<p class="note">{escape(summary["note"].capitalize())}.</p>' if "note" in summary else ""
    spent = [group["epsilon_spent"] for group in summary["groups"] if group["epsilon_spent"] is not None]
    numbers = [
        _quality(summary, told),
        ("rounds", str(summary["rounds"])),
        ("clients", str(plan.clients)),
        ("most that anybody has spent", f"ε = {max(spent):.2f}" if spent else "no privacy"),
    ]
    how = (
        f"Model {summary['model']}, seed {summary['seed']}, δ = {plan.delta:g}, {plan.composition} composition, "
        f"ε by {LABELS[plan.accountant]}."
    )
    stopped = [f"It {summary['stopped']}, and can go on."] if "stopped" in summary else []
    said = "".join(f'<p class="note">{escape(remark)}</p>' for remark in [*stopped, *summary.get("remarks", ())])
    return f'{note}{said}{facts(numbers)}<p class="soft">{escape(how)}</p>'


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
    rows = [(group["name"], *(f"{group[key]:.3f}" for key in _ACCOUNT)) for group in summary["groups"]]
    rules = escape("; ".join(dict.fromkeys(str(group["account"]) for group in summary["groups"])))
    return (
        f"{as_html(('group', *_ACCOUNT.values()), rows, PALETTE)}<p>Of each group's member with the least left. "
        f"Accounts: {rules}. Run <code>{escape(str(summary['run']))}</code>. ε of several runs do not add up: together "
        f"they are less. Rounding noise to the lattice costs ε = {summary['epsilon_of_rounding']:.0e} at most.</p>"
    )


def _plan_table(plan: Plan, colluders: int) -> str:
    heads = ("group", "clients", "budget ε", "ε spent", "rate q", "noise σ, first", "noise σ, last", "clip norm, last")
    rows = [
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
    digest = f"<p>Plan <code>{plan.digest}</code>.</p>"
    return f"{as_html(heads, rows, PALETTE)}{digest}{_exposure_table(plan, colluders)}"


def _exposure_table(plan: Plan, colluders: int) -> str:
    """What attackers gain who know more than the plan assumes."""
    found = exposures(plan, colluders)
    if not found:
        return ""
    known = [f"ε, {k} colluder{'s' if k > 1 else ''}" for k in found[0].colluding]
    rows = [
        (
            one.row.group.name,
            *map(epsilon_text, (one.epsilon, one.sampled, *one.colluding.values())),
            f"{one.excess:+.3f}" if i < _GUESSED else "–",
        )
        for i, one in enumerate(found)
    ]
    table = as_html(("group", "ε", "ε, sampled for sure", *known, "excess advantage"), rows, PALETTE)
    return (
        "<p>The promise is about a client's data being there or not, against anybody who does not know who was sampled."
        " Against an attacker who knows that a client was in every round, or who has clients' own shares of the noise, "
        f"it is this:</p>{table}<p>Excess advantage is how much better anybody can tell whether a client's data is "
        "there than from one Gaussian release that uses up the same budget.</p>"
    )
