"""Outcomes on disk: CSV, Markdown and charts, a page for all of them, and the blocks of a page written by hand."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from html import escape
from pathlib import Path

from nestegg.errors import InputError
from nestegg.experiments.cells import CURVE_SAMPLES, LOSS_SAMPLES
from nestegg.experiments.outcomes import AGREEMENTS, DUEL_RULE, FORMAT_RULE, RULE, Outcome
from nestegg.experiments.views import charts, view_of
from nestegg.files import make_folder, write_atomically
from nestegg.report.charts import Picture, draw_charts, save_charts
from nestegg.report.frame import Part, facts, make_page
from nestegg.report.markup import as_csv, as_html, as_markdown

MEASURED = (
    f"Accuracy is test accuracy after the last round, on all test data; curves show the rounds before it, on about "
    f"{CURVE_SAMPLES:,} test samples, evenly spread. Training loss is of at most {LOSS_SAMPLES} samples of each client."
)
RULES = (RULE, DUEL_RULE, FORMAT_RULE, MEASURED)
PICTURES = Path("images", "results")  # beside a page written by hand


def write_outcomes(folder: Path, outcomes: Sequence[Outcome]) -> Path:
    """Write the tables as CSV and Markdown, the charts as PNG and SVG, and a page with everything; return the page."""
    parts = []
    for outcome in outcomes:
        for suffix, table in view_of(outcome).files(outcome).items():
            write_atomically(folder / f"{outcome.name}{suffix}.csv", as_csv(*table))
        write_atomically(folder / f"{outcome.name}.md", f"# {outcome.experiment.title}\n\n{markdown(outcome)}")
        parts.append(_part(outcome, list(save_charts(folder, charts(outcome)).values())))
    rules = "".join(f"<p>{escape(rule)}</p>" for rule in RULES)
    page = make_page("The paper, reproduced", _summary(outcomes), [*parts, Part("How verdicts are made", rules)])
    path = folder / "index.html"
    write_atomically(path, page)
    return path


def refresh_page(page: Path, outcomes: Sequence[Outcome]) -> None:
    """Make the blocks of a Markdown page anew, and the pictures beside it; the words around them stay."""
    drawn = draw_charts({name: chart for outcome in outcomes for name, chart in charts(outcome).items()})
    write_atomically(page, refreshed(page.read_text(encoding="utf-8"), outcomes, drawn))
    folder = page.parent / PICTURES
    make_folder("pictures", folder)
    for name, picture in drawn.items():
        write_atomically(folder / f"{name}.svg", picture.svg)


def refreshed(text: str, outcomes: Sequence[Outcome], drawn: Container[str]) -> str:
    """Return a page with what is between `<!-- NAME -->` and `<!-- /NAME -->` made anew, for each outcome of that name.

    Args:
        text: of the page as it is.
        outcomes: that have a block in it.
        drawn: names of those that have a picture.

    Raises:
        InputError: an outcome, or the block of the rules, does not have one place.
    """
    blocks = {"rules": "\n\n".join(RULES)}
    for outcome in outcomes:
        link = f"![{outcome.experiment.question}]({(PICTURES / outcome.name).as_posix()}.svg)\n\n"
        blocks[outcome.name] = (link if outcome.name in drawn else "") + markdown(outcome)
    for name, block in blocks.items():
        parts = re.split(rf"(<!-- /?{name} -->)", text)
        if parts[1::2] != [f"<!-- {name} -->", f"<!-- /{name} -->"]:
            raise InputError(f"The page must have one block for {name}, from <!-- {name} --> to <!-- /{name} -->.")
        before, begin, _, end, after = parts
        text = f"{before}{begin}\n{block.strip()}\n{end}{after}"
    return text


def markdown(outcome: Outcome) -> str:
    """Where it comes from, what the paper claims, what was reduced and assumed, the tables, and of which format."""
    experiment = outcome.experiment
    claim = [f"The paper's claim: {experiment.claim}"] if experiment.claim else []
    assumed = [f"Assumed: {sentence}" for sentence in experiment.assumed]
    lines = [f"{experiment.source}.", *claim, *outcome.reductions, *assumed]
    made = [as_markdown(heads, rows) for heads, rows in view_of(outcome).tables(outcome)]
    return "\n\n".join([*lines, *made, *outcome.formats])


def _summary(outcomes: Sequence[Outcome]) -> str:
    lines = [line for outcome in outcomes for line in outcome.lines]
    verdicts = [line.verdict for line in lines]
    duels = [*{duel.hashes: duel.verdict for line in lines for duel in line.duels}.values()]  # tables share cells
    numbers = [(f"rows: {kind}", str(sum(one.startswith(kind) for one in verdicts))) for kind in AGREEMENTS]
    numbers += [("comparisons won", str(duels.count("beats"))), ("lost", str(duels.count("is beaten by")))]
    where = "one table or figure" if len(outcomes) == 1 else f"{len(outcomes)} tables and figures"
    return (
        f"{facts(numbers)}<p>Of {len(verdicts)} rows in {where}, at the scale "
        f"“{escape(outcomes[0].scale)}”. Every number carries the hash of its configuration.</p>"
    )


def _part(outcome: Outcome, pictures: list[Picture]) -> Part:
    experiment = outcome.experiment
    claim = f"<p><b>The paper's claim.</b> {escape(experiment.claim)}</p>" if experiment.claim else ""
    notes = [
        experiment.source + ".",
        *outcome.reductions,
        *(f"Assumed: {one}" for one in experiment.assumed),
        *outcome.formats,
    ]
    made = "".join(as_html(heads, rows) for heads, rows in view_of(outcome).tables(outcome))
    return Part(experiment.title, f'{claim}{made}<p class="soft">{escape(" ".join(notes))}</p>', pictures)
