"""Outcomes on disk: CSV, Markdown and charts, and a page for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from nestegg.experiments.cells import CURVE_SAMPLES, LOSS_SAMPLES
from nestegg.experiments.outcomes import AGREEMENTS, BEATS, DUEL_RULE, FORMAT_RULE, LOSES, RULE, Outcome
from nestegg.experiments.views import charts, view_of
from nestegg.files import write_atomically
from nestegg.report.charts import Picture, save_charts
from nestegg.report.frame import Part, facts, make_page
from nestegg.report.markup import as_csv, as_html, as_markdown

MEASURED = (
    f"Accuracy is test accuracy after the last round, on all test data; curves show the rounds before it, on about "
    f"{CURVE_SAMPLES:,} test samples, evenly spread. Training loss is of at most {LOSS_SAMPLES} samples of each client."
)
RULES = (RULE, DUEL_RULE, FORMAT_RULE, MEASURED)
HEADS = ("Numbers", "Tests")  # of an outcome's tables


def write_outcomes(folder: Path, outcomes: Sequence[Outcome]) -> Path:
    """Write the tables as CSV and Markdown, the charts as PNG and SVG, and a page with everything; return the page."""
    parts = []
    for outcome in outcomes:
        for suffix, table in view_of(outcome).files(outcome).items():
            write_atomically(folder / f"{outcome.name}{suffix}.csv", as_csv(*table))
        pictures = save_charts(folder, charts(outcome))
        text = markdown(outcome, f"{outcome.name}.svg" if pictures else None)
        write_atomically(folder / f"{outcome.name}.md", f"# {outcome.experiment.title}\n\n{text}")
        parts.append(_part(outcome, list(pictures.values())))
    rules = "".join(f"<p>{escape(rule)}</p>" for rule in RULES)
    page = make_page("The paper, reproduced", _summary(outcomes), [*parts, Part("How verdicts are made", rules)])
    path = folder / "index.html"
    write_atomically(path, page)
    return path


def markdown(outcome: Outcome, picture: str | None = None) -> str:
    """Where it comes from, what the paper claims, a picture, the tables, what was reduced and assumed, and formats."""
    experiment = outcome.experiment
    claim = f" The paper's claim: {experiment.claim}" if experiment.claim else ""
    parts = [f"{experiment.source}.{claim}", *([f"![{experiment.question}]({picture})"] if picture else [])]
    for head, table in zip(HEADS, view_of(outcome).tables(outcome), strict=False):
        parts += [f"## {head}", as_markdown(*table).strip()]
    return (
        "\n\n".join([*parts, "## Conditions", "\n".join(f"- {sentence}" for sentence in _conditions(outcome))]) + "\n"
    )


def _conditions(outcome: Outcome) -> list[str]:
    return [*outcome.reductions, *(f"Assumed: {one}" for one in outcome.experiment.assumed), *outcome.formats]


def _summary(outcomes: Sequence[Outcome]) -> str:
    lines = [line for outcome in outcomes for line in outcome.lines]
    verdicts = [line.verdict for line in lines]
    duels = [*{duel.hashes: duel.verdict for line in lines for duel in line.duels}.values()]  # tables share cells
    numbers = [(f"rows: {kind}", str(verdicts.count(kind))) for kind in AGREEMENTS]
    numbers += [("comparisons won", str(duels.count(BEATS))), ("lost", str(duels.count(LOSES)))]
    where = "one table or figure" if len(outcomes) == 1 else f"{len(outcomes)} tables and figures"
    return (
        f"{facts(numbers)}<p>Of {len(verdicts)} rows in {where}, at the scale "
        f"“{escape(outcomes[0].scale)}”. Every number carries the hash of its configuration.</p>"
    )


def _part(outcome: Outcome, pictures: list[Picture]) -> Part:
    experiment = outcome.experiment
    claim = f"<p><b>The paper's claim.</b> {escape(experiment.claim)}</p>" if experiment.claim else ""
    notes = [f"{experiment.source}.", *_conditions(outcome)]
    made = "".join(as_html(heads, rows) for heads, rows in view_of(outcome).tables(outcome))
    return Part(experiment.title, f'{claim}{made}<p class="soft">{escape(" ".join(notes))}</p>', pictures)
