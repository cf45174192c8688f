"""The rows of an outcome's tables, as text."""

from __future__ import annotations

from functools import lru_cache

from nestegg.accounting import RdpAccountant, compose
from nestegg.experiments.cells import plan_of
from nestegg.experiments.figures import curve_rows, relative_noise
from nestegg.experiments.outcomes import NO_NUMBER, Duel, Number, Outcome
from nestegg.experiments.scales import configured, scaled
from nestegg.planning import LABELS, Plan, epsilon_by_pld

NUMBERS = ("row", "method", "paper", "ours", "apart", "seeds", "hash", "format", "verdict on the row", "note")
DUELS = ("row", "method", "rival", "ahead by", "95 % interval", "p", "seeds", "verdict")
SPENDING = ("group", "method", "ε spent, by RDP", "ε spent, by PLD", "planned with", "left", "hash")
NOISE = ("row", "method", "first round", "last of saving", "first of spending", "last round", "hash")
CURVES = ("row", "method", "round")


def number_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """A line for each number: the paper's, ours, the difference, and the row's verdict with what it leaves out."""
    labels = {column.name: column.label for column in outcome.experiment.columns}
    return [
        (line.row.label, labels[name], *_number_cells(number), line.verdict, line.note)
        for line in outcome.lines
        for name, number in line.numbers.items()
    ]


def duel_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """A line for each method that has a rival; below their names are their hashes."""
    labels = {column.name: column.label for column in outcome.experiment.columns}
    rows: list[tuple[str, ...]] = []
    for line in outcome.lines:
        for duel in line.duels:
            both = zip((duel.method, duel.rival), duel.hashes, strict=True)
            names = (f"{labels[name]}\n{digest}" for name, digest in both)
            rows.append((line.row.label, *names, *_duel_cells(duel, line.numbers[duel.method].measure)))
    return rows


def spending_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """What every group has spent in the end, method by method, by both accountants."""
    rows = []
    for line in outcome.lines:
        for column in outcome.experiment.columns:
            number = line.numbers[column.name]
            plan = plan_of(configured(outcome.experiment.cell(line.row, column), outcome.scale, 0))
            for row, (rdp, pld) in zip(plan.groups, _spent(plan), strict=True):
                budget = row.group.budget.epsilon
                left = budget - (rdp if plan.accountant == "rdp" else pld)
                numbers = (f"{rdp:.3f}", f"{pld:.3f}", LABELS[plan.accountant], f"{left:z.3f}", number.hash)
                rows.append((f"{line.row.label}, {row.group.name}, ε = {budget:g}", column.label, *numbers))
    return sorted(rows, key=lambda row: row[0])


@lru_cache(maxsize=64)
def _spent(plan: Plan) -> list[tuple[float, float]]:
    """Every group's ε after all rounds, by RDP and by PLD, which takes a second: terminal, file and page all ask."""
    curves = [(compose(RdpAccountant(), row.charges()), row) for row in plan.groups]
    return [(float(rdp.epsilon(row.group.budget.delta)[0]), epsilon_by_pld(row)) for rdp, row in curves]


def noise_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """Noise in a parameter, relative to the first method's, where saving begins and ends and where spending does."""
    rows = []
    for line in outcome.lines:
        setting, _ = scaled(outcome.experiment.cell(line.row, outcome.experiment.columns[0]), outcome.scale)
        start = min(setting.transition)
        for (label, curve), number in zip(relative_noise(outcome, line).items(), line.numbers.values(), strict=True):
            ends = (curve[0], curve[max(0, start - 2)], curve[start - 1], curve[-1])
            rows.append((line.row.label, label, *(f"{value:.2f}" for value in ends), number.hash))
    return rows


def wide_rows(outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """The table as papers print it, methods across or down, whichever is narrower; a hash is below its number."""
    columns, lines = outcome.experiment.columns, outcome.lines
    table = [["", *(column.label for column in columns), "verdict"]]
    for line in lines:
        best = {name: f"c = {norm:.4g}" for name, norm in line.row.best.items()}
        entries = (_entry(line.numbers[c.name], best.get(c.name)) for c in columns)
        table.append([line.row.label, *entries, "\n".join(filter(None, (line.verdict, line.note)))])
    if all(line.verdict == NO_NUMBER for line in lines):
        table = [row[:-1] for row in table]
    if len(columns) > len(lines):
        table = [list(row) for row in zip(*table, strict=True)]
    return table[0], table[1:]


def curve_points(outcome: Outcome) -> list[tuple[str, ...]]:
    """A line for each point of every curve."""
    return [
        (line.row.label, point["method"], str(point["round"]), f"{point['value']:.4f}")
        for line in outcome.lines
        for point in curve_rows(outcome, line)
    ]


def _entry(number: Number, how: str | None = None) -> str:
    missing = [] if number.complete or not number.cells else [f"{len(number.cells)} of {number.asked} seeds"]
    missing += [f"{number.others} of another format"] if number.others and number.cells else []
    paper = [] if number.paper is None else [f"paper {number.paper:.2f}"]
    hashes = [number.hash] if number.cells else []
    return "\n".join([_ours(number), *missing, *paper, *filter(None, [how]), *hashes])


def _ours(number: Number) -> str:
    if not number.cells:
        return "of another format" if number.others else "not run"
    digits = _digits(number.measure)
    spread = f" ± {number.deviation:.{digits}f}" if len(number.cells) > 1 else ""
    return f"{number.mean:.{digits}f}{spread}"


def _digits(measure: str) -> int:
    return 2 if measure == "accuracy" else 3


def _number_cells(number: Number) -> tuple[str, ...]:
    paper = "–" if number.paper is None else f"{number.paper:.2f}"
    difference = "–" if number.difference is None else f"{number.difference:+.2f}"
    form = str(number.cells[0].format) if number.cells else "–"
    return paper, _ours(number), difference, " ".join(map(str, number.values)) or "–", number.hash, form


def _duel_cells(duel: Duel, measure: str) -> tuple[str, ...]:
    ahead = f"{duel.ahead:+.{_digits(measure)}f}"
    p = "–" if duel.p is None else f"{duel.p:.3f}" if duel.p >= 0.001 else "< 0.001"
    interval = "–" if duel.interval is None else " to ".join(f"{end:+.{_digits(measure)}f}" for end in duel.interval)
    return ahead, interval, p, str(duel.seeds), duel.verdict
