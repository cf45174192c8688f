"""What trials gave: gains over nothing, seed by seed, and the verdict by a rule that was written down first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.trials.cells import Cells
from bench.trials.roster import CLIENT, NOTHING, OPPONENT, ROSTER, SERVER
from bench.trials.settings import FRESH, PAPER, REPORTED, SEEDS, STRICT, digest_of
from nestegg.experiments.written import with_block
from nestegg.files import write_atomically
from nestegg.report.markup import as_markdown

NEEDED = 3  # datasets on which an idea must gain, of four, at the paper's budgets
NO = "no"
CLOSE = 1.0  # points by which an opponent may be behind and still be run on reported seeds
TITLES = {SERVER: "The server", CLIENT: "Clients", OPPONENT: "Opponents"}
LABELS = {"adult": "Adult", "mnist": "MNIST", "fashion-mnist": "FMNIST", "cifar10": "CIFAR-10"}
ROWS = (*PAPER.values(), *STRICT.values())
HEADS = [LABELS[dataset] for dataset in PAPER]


def accuracies(cells: Cells, name: str, row: str, seeds: Sequence[int]) -> list[float] | None:
    """Return the accuracies of an idea, a seed each; none if any is missing."""
    found = [cells.get(name, ROSTER[name].make(), row, seed) for seed in seeds]
    known = [one.accuracy for one in found if one is not None]
    return known if len(known) == len(seeds) else None


def gains(cells: Cells, name: str, row: str, seeds: Sequence[int]) -> list[float] | None:
    """Return what an idea gains over nothing with each seed; none if a run is missing."""
    ours, theirs = (accuracies(cells, one, row, seeds) for one in (name, NOTHING))
    return None if ours is None or theirs is None else [a - b for a, b in zip(ours, theirs, strict=True)]


def verdict(cells: Cells, name: str, seeds: Sequence[int]) -> str:
    """Return on how many datasets an idea gains at the paper's budgets, and whether that is enough."""
    found = [gains(cells, name, row, seeds) for row in PAPER.values()]
    known = [float(np.mean(one)) for one in found if one is not None]
    wins = sum(one > 0.0 for one in known)
    if wins < NEEDED <= wins + len(found) - len(known):
        return f"{wins} of {len(known)}, open"
    return f"{wins} of {len(known)}, {'**passes**' if wins >= NEEDED else NO}"


def shown(values: list[float] | None) -> str:
    """Return a mean and its standard error, in points."""
    if values is None:
        return "–"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.2f} ± {error:.2f}".replace("-", "−")


def table(cells: Cells, kind: str, seeds: Sequence[int]) -> str:
    """Return the table of one kind of ideas, those that were tried with these seeds anywhere."""
    lines = []
    for name, entry in ROSTER.items():
        found = [gains(cells, name, row, seeds) for row in ROWS]
        if entry.kind == kind and any(one is not None for one in found):
            lines.append([f"{entry.label} (`{name}`)", *map(shown, found), verdict(cells, name, seeds)])
    return as_markdown(["idea", *HEADS, *(f"{head}, strict" for head in HEADS), "gains at the paper's budgets"], lines)


def baseline(cells: Cells, seeds: Sequence[int]) -> str:
    """Return what nothing reaches."""
    found = [accuracies(cells, NOTHING, row, seeds) for row in ROWS]
    values = ["–" if one is None else f"{np.mean(one):.2f}" for one in found]
    return as_markdown(["nothing, in %", *HEADS, *(f"{head}, strict" for head in HEADS)], [["", *values]])


def is_close(cells: Cells, name: str, row: str) -> bool:
    """Return whether an opponent came within a point of nothing on a row, by validation data."""
    found = gains(cells, name, row, SEEDS) if ROSTER[name].kind == OPPONENT else None
    return found is not None and bool(np.mean(found) >= -CLOSE)


def close(cells: Cells) -> Iterator[list[str]]:
    """Yield a line for each opponent that came close anywhere: by validation data, on reported seeds, and its hash."""
    for name, entry in ROSTER.items():
        for head, row in zip(HEADS, PAPER.values(), strict=True):
            if is_close(cells, name, row):
                found = shown(gains(cells, name, row, SEEDS)), shown(gains(cells, name, row, REPORTED))
                yield [f"{entry.label} (`{name}`)", head, *found, f"`{digest_of(row, entry.make())}`"]


def summary(cells: Cells) -> str:
    """Return all tables as Markdown."""
    parts = [f"Mean accuracy with the seeds {', '.join(map(str, SEEDS))}:", baseline(cells, SEEDS)]
    for kind, title in TITLES.items():
        parts += [f"### {title}", table(cells, kind, SEEDS)]
    tried = [name for name in ROSTER if name != NOTHING and gains(cells, name, ROWS[0], FRESH) is not None]
    if tried:
        parts += [f"### What passed, with ten fresh seeds ({FRESH[0]} to {FRESH[-1]})", baseline(cells, FRESH)]
        parts += [table(cells, kind, FRESH) for kind in TITLES if any(ROSTER[name].kind == kind for name in tried)]
    heads = ["opponent", "dataset", "on validation data", "test data, seeds 0 to 9", "configuration"]
    parts += ["### Opponents that came within a point", as_markdown(heads, list(close(cells)))]
    return "\n\n".join(part.strip() for part in parts)


def refresh(page: Path, cells: Cells) -> None:
    """Make the block of the page anew; the words around it stay."""
    write_atomically(page, with_block(page.read_text(encoding="utf-8"), "trials", summary(cells)))
