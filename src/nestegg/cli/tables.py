"""Plans as tables and a small chart for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nestegg.planning import LABELS, GroupPlan, Plan, epsilon_text, exposures, remarks
from nestegg.planning.curves import Pace
from nestegg.planning.influence import forgetting, resampled
from nestegg.planning.reaching import reaching_noise

COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
MARKS = "●▲■◆▼★"
SHOWN = 12


def show(console: Console, plan: Plan, colluders: int | None = None) -> None:
    """Show a plan: what it is, its groups, what they are exposed to, when it spends, what is odd.

    Without a number of colluders, what groups are exposed to is left out: it takes seconds where all else is at hand.
    """
    console.print(
        f"[bold]{escape(plan.title)}[/]: {plan.clients} clients in {len(plan.groups)} groups, "
        f"{plan.rounds} rounds, δ = {plan.delta:g}\n",
        highlight=False,
    )
    console.print(groups_table(plan))
    console.print(spending_table(plan))
    if plan.is_private and colluders is not None:
        console.print(exposure_table(plan, colluders))
    if plan.is_private:
        console.print(spending_chart(plan))
    for remark in remarks(plan):
        console.print(f"[yellow]{escape(remark)}[/]", highlight=False)


def show_comparison(console: Console, plan: Plan, rivals: dict[str, Plan], pace: Pace) -> None:
    """The plan of a configuration among its rivals: uniform spending, the paper's rule, the exact one, the computed."""
    uniform, paper = rivals["idp-fedavg"], rivals["paper"]
    plans = {**rivals, plan.about.label: plan} if plan.about.is_own else rivals
    console.print(comparison(plans))
    console.print(reaching_table(plans, pace, plan.parameters.get("influence")))
    if plan.about.rates == "saving":
        console.print(savings_table(plan, paper, uniform))
    if plan.is_private:
        console.print(spending_chart(plan, uniform))


def reaching_table(plans: dict[str, Plan], pace: Pace, measured: Sequence[float] | None) -> Table:
    """A line a planner: how much of its noise is in the final model, beside spending evenly."""
    heads = {0.0: "κ = 0, nothing forgotten", 2.0: "κ = 2"}
    kept = {head: forgetting(memory, pace.learning_rate) for memory, head in heads.items()}
    if measured is not None:
        kept["measured"] = resampled(np.array(measured), len(pace.learning_rate))
    table = plain_table("Variance of noise in the model, beside uniform", *kept, first="planner")
    even = {name: reaching_noise(plans["idp-fedavg"], pace, weights).sum() for name, weights in kept.items()}
    for planner, one in plans.items():
        shares = (reaching_noise(one, pace, weights).sum() / even[name] for name, weights in kept.items())
        table.add_row(planner, *(f"{share:.3f}" for share in shares))
    return table


def groups_table(plan: Plan) -> Table:
    """A line a group: budget, rates, and noise in saving and spending rounds, or in the first and the last."""
    saves = plan.about.rates == "saving"
    noise = ("noise σ, saving", "noise σ, spending") if saves else ("noise σ, first", "noise σ, last")
    table = plain_table("Every client's plan", "clients", "budget ε", "rate q", *noise)
    for row in plan.groups[:SHOWN]:
        begins, ends = _phases(row) if saves else (row.noise_multiplier[:1], row.noise_multiplier[-1:])
        first, last = f"{row.sampling_rate[0]:g}", f"{row.sampling_rate[-1]:g}"
        table.add_row(
            name(row.group.name),
            str(row.group.clients),
            f"{row.group.budget.epsilon:g}",
            first if first == last else f"{first} → {last}",
            _span(begins),
            _span(ends),
        )
    return say_rest(table, len(plan.groups))


def spending_table(plan: Plan) -> Table:
    """A line a group: ε spent at the quarters of the training, and in the end by the independent judge."""
    quarters = [max(1, round(plan.rounds * k / 4)) for k in (1, 2, 3, 4)]
    title = f"ε spent by {LABELS[plan.accountant]}, and in the end by PLD"
    table = plain_table(title, *(f"after {t}" for t in quarters), "by PLD", "budget ε")
    for row in plan.groups[:SHOWN]:
        spent = (*(row.epsilon_spent[t - 1] for t in quarters), row.epsilon_spent_pld)
        table.add_row(name(row.group.name), *map(number, spent), f"{row.group.budget.epsilon:g}")
    return say_rest(table, len(plan.groups))


def exposure_table(plan: Plan, colluders: int) -> Table:
    """A line a group: ε against attackers who know more than the plan assumes, and how well anybody can guess."""
    shown = exposures(plan, colluders)[:SHOWN]
    known = [f"{k}\ncolluder{'s' if k > 1 else ''}" for k in shown[0].colluding]
    table = plain_table(
        "What an attacker gains who knows more, as ε", "ε", "sampled\nfor sure", *known, "excess\nadvantage"
    )
    for one in shown:
        epsilons = (one.epsilon, one.sampled, *one.colluding.values())
        table.add_row(name(one.row.group.name), *map(epsilon_text, epsilons), f"{one.excess:+z.3f}")
    return say_rest(table, len(plan.groups))


def savings_table(plan: Plan, paper: Plan, uniform: Plan) -> Table:
    """What the composition is worth: noise while spending, and budget that is never spent."""
    table = plain_table(
        f"What {plan.composition} composition changes in the spending rounds",
        "noise σ",
        "to paper's rule",
        "to uniform",
        "ε unspent",
        "by paper's rule",
    )
    trios = zip(plan.groups, paper.groups, uniform.groups, strict=True)
    for row, *others in list(trios)[:SHOWN]:
        noise, first = np.mean(_phases(row)[1]), (row.group.transition or 1) - 1
        table.add_row(
            name(row.group.name),
            f"{noise:.3f}",
            *(f"{noise / np.mean(rival.noise_multiplier[first:]) - 1:+.1%}" for rival in others),
            *(number(max(r.group.budget.epsilon - r.epsilon_spent[-1], 0.0)) for r in (row, others[0])),
        )
    return say_rest(table, len(plan.groups))


def comparison(plans: dict[str, Plan]) -> Table:
    """Several plans for the same budgets, group by group; noise is the mean over the saving or spending rounds."""
    table = plain_table(
        f"The same budgets, {len(plans)} planners: their noise σ and the ε they spend",
        "planner",
        "first",
        "saving",
        "spending",
        "last",
        "ε",
        "by PLD",
        "of ε",
    )
    table.collapse_padding = True  # it has many columns
    for rows in list(zip(*(plan.groups for plan in plans.values()), strict=True))[:SHOWN]:
        first = max((row.group.transition or 1) for row in rows) - 1
        for planner, row in zip(plans, rows, strict=True):
            noise = row.noise_multiplier
            table.add_row(
                name(row.group.name if row is rows[0] else ""),
                planner,
                f"{noise[0]:.3f}",
                f"{np.mean(noise[:first]):.3f}" if first else "–",
                f"{np.mean(noise[first:]):.3f}",
                f"{noise[-1]:.3f}",
                number(row.epsilon_spent[-1]),
                number(row.epsilon_spent_pld),
                f"{row.group.budget.epsilon:g}",
                end_section=row is rows[-1],
            )
    return say_rest(table, len(next(iter(plans.values())).groups))


def spending_chart(plan: Plan, uniform: Plan | None = None, width: int = 60, height: int = 12) -> Text:
    """ε spent over the rounds: a mark a group, and dots where uniform spending would be, if that is given."""
    rows = plan.groups[: len(MARKS)]
    top = max(row.group.budget.epsilon for row in rows)
    columns = min(plan.rounds, width)
    rounds = np.linspace(1, plan.rounds, columns).round().astype(int)
    grid = [[(" ", "")] * columns for _ in range(height)]
    series = [(other.epsilon_spent, "·", "dim") for other in uniform.groups[: len(rows)]] if uniform else []
    series += [(row.epsilon_spent, MARKS[i], COLOURS[i]) for i, row in enumerate(rows)]
    for spent, mark, style in series:
        for x, t in enumerate(rounds):
            y = min(int(spent[t - 1] / top * height), height - 1)
            grid[height - 1 - y][x] = (mark, style)
    chart = Text()
    chart.append("ε spent, round by round   ", style="bold")
    for row, mark, colour in zip(rows, MARKS, COLOURS, strict=False):
        chart.append(f"{mark} {_short(row.group.name)}  ", style=colour)
    chart.append("· uniform spending\n" if uniform else "\n", style="dim")
    gap = " " * (2 if columns <= width // 2 else 1)
    for i, line in enumerate(grid):
        label = f"{top * (height - i) / height:7.2f}" if i % 3 == 0 else " " * 7
        chart.append(f"{label} ┤")
        for mark, style in line:
            chart.append(mark + gap[1:], style=style or None)
        chart.append("\n")
    chart.append(f"{0:7.2f} └" + "─" * (columns * len(gap)) + f" round {plan.rounds}\n")
    return chart


def final_table(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> Table:
    """A line a method: how good it is in the end."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for number, heading in enumerate(heads):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _short(text: str, most: int = 16) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _phases(row: GroupPlan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Noise while saving and while spending."""
    first = (row.group.transition or 1) - 1
    return row.noise_multiplier[:first], row.noise_multiplier[first:]


def _span(values: tuple[float, ...]) -> str:
    if not values:
        return "–"
    first, last = f"{values[0]:.3f}", f"{values[-1]:.3f}"
    return first if first == last else f"{first} → {last}"


def number(value: float | None) -> str:
    """Three decimals, or a dash."""
    return "–" if value is None or not np.isfinite(value) else f"{value:.3f}"


def plain_table(title: str, *headings: str, first: str = "group") -> Table:
    """A table whose first column names groups or the like, and gives way where space is short: numbers are not cut."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column(
        first, max_width=32
    )  # its names are `name`s, which are cut; a column that is cut takes others along
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def name(text: str) -> Text:
    """A name in the first column of a table, cut where there is no space for it."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def say_rest(table: Table, rows: int, what: str = "groups") -> Table:
    """Say how many rows are not shown."""
    if rows > SHOWN:
        table.caption = f"and {rows - SHOWN} more {what}; --json shows all"
        table.caption_justify = "left"
    return table
