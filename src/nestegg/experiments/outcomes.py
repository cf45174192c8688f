"""What an experiment gave: our numbers beside the paper's, and verdicts by stated rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.stats import ttest_rel

from nestegg.config import Config
from nestegg.experiments.cells import Cell, Store, hash_of
from nestegg.experiments.definition import Column, Experiment, Row
from nestegg.experiments.scales import configured, stated_reduction

CLOSE, SPREAD, APART, SURE = 3.0, 2.0, 0.4, 0.05  # the least by which the paper calls a method better is 0.44
AGREEMENTS = ("agrees in value", "agrees in order of methods", "does not agree")
RULE = (
    f"A row agrees in value if each of its accuracies is within {CLOSE:g} points of the paper's or within "
    f"{SPREAD:g} of our standard deviations; it agrees in order if any two methods that the paper puts at least "
    f"{APART:g} points apart stand in the same order here; otherwise it does not agree."
)
DUEL_RULE = (
    f"A method beats its rival if it is ahead and a paired t-test over the seeds, two-sided, gives p < {SURE:g}; both "
    "have the same partition, initial model and seeds."
)


@dataclass(frozen=True)
class Number:
    """One entry of a table: the paper's accuracy and ours, seed by seed."""

    paper: float | None
    hash: str
    cells: tuple[Cell, ...]
    asked: int

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the cells that are there."""
        return tuple(cell.seed for cell in self.cells)

    @property
    def complete(self) -> bool:
        """Whether all seeds that were asked for are there."""
        return len(self.cells) == self.asked

    def over(self, seeds: Collection[int]) -> Number:
        """The same with these seeds only."""
        return replace(self, cells=tuple(cell for cell in self.cells if cell.seed in seeds))

    @property
    def mean(self) -> float:
        """Over the seeds, of the accuracy after the last round."""
        return float(np.mean([cell.final for cell in self.cells]))

    @property
    def deviation(self) -> float:
        """Over the seeds; 0 for one."""
        return float(np.std([cell.final for cell in self.cells], ddof=1)) if len(self.cells) > 1 else 0.0

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return self.mean - self.paper if self.paper is not None and self.cells else None

    @property
    def close(self) -> bool:
        """Whether ours agrees with the paper's in value."""
        return self.difference is not None and abs(self.difference) <= max(CLOSE, SPREAD * self.deviation)


@dataclass(frozen=True)
class Duel:
    """A method against its rival, over the seeds that both have run with."""

    method: str
    rival: str
    ahead: float
    p: float | None  # none with a single seed, or where all differences are equal
    seeds: int

    @property
    def verdict(self) -> str:
        """In words."""
        if self.p is None:
            return "one seed, no test" if self.seeds == 1 else "no test: equal differences"
        if self.p >= SURE:
            return "cannot be told apart"
        return "beats" if self.ahead > 0 else "is beaten by"


@dataclass(frozen=True)
class Line:
    """A row of a table."""

    row: Row
    numbers: dict[str, Number]
    duels: tuple[Duel, ...]

    @property
    def verdict(self) -> str:
        """By the stated rule, of the entries for which the paper has a number, over the seeds that all of them have."""
        both = [number for number in self.numbers.values() if number.paper is not None]
        if not both:
            return "the paper states no number"
        common = set.intersection(*(set(number.seeds) for number in both))
        if not common:
            return "not all of it run" if any(number.cells for number in both) else "not run"
        compared = [number.over(common) for number in both]
        missing = f" ({len(common)} of {both[0].asked} seeds)" if len(common) < both[0].asked else ""
        if all(number.close for number in compared):
            return f"{AGREEMENTS[0]}{missing}"
        if all(_same_order(a, b) for a, b in combinations(compared, 2)):
            return f"{AGREEMENTS[1]}{missing}"
        return f"{AGREEMENTS[2]}{missing}"


@dataclass(frozen=True)
class Outcome:
    """An experiment with all that is known of it."""

    name: str
    experiment: Experiment
    scale: str
    lines: tuple[Line, ...]

    @property
    def reductions(self) -> list[str]:
        """What the scale changes, dataset by dataset and for every setting that is changed in another way."""
        first = self.experiment.columns[0]
        rows = (self.experiment.cell(line.row, first) for line in self.lines)
        return list(dict.fromkeys(stated_reduction(setting, self.scale) for setting in rows))


def configs_of(experiment: Experiment, scale: str, seeds: Sequence[int]) -> dict[tuple[str, str], list[Config]]:
    """Every cell's configuration, by row, column and seed."""
    return {
        (row.name, column.name): [configured(experiment.cell(row, column), scale, seed) for seed in seeds]
        for row in experiment.shown_rows()
        for column in experiment.columns
    }


def outcome_of(name: str, experiment: Experiment, scale: str, seeds: Sequence[int], store: Store) -> Outcome:
    """Read the cells that are there."""
    configs = configs_of(experiment, scale, seeds)
    lines = []
    for row in experiment.shown_rows():
        numbers = {
            column.name: _number(row.paper.get(column.name), configs[row.name, column.name], store)
            for column in experiment.columns
        }
        duels = (_duel(column, numbers) for column in experiment.columns)
        lines.append(Line(row, numbers, tuple(duel for duel in duels if duel is not None)))
    return Outcome(name, experiment, scale, tuple(lines))


def _number(paper: float | None, configs: Sequence[Config], store: Store) -> Number:
    found = (store.get(config) for config in configs)
    return Number(paper, hash_of(configs[0]), tuple(cell for cell in found if cell is not None), len(configs))


def _duel(column: Column, numbers: dict[str, Number]) -> Duel | None:
    if column.rival is None:
        return None
    ours, theirs = ({cell.seed: cell.final for cell in numbers[name].cells} for name in (column.name, column.rival))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    a, b = (np.array([side[seed] for seed in seeds]) for side in (ours, theirs))
    testable = len(seeds) > 1 and np.ptp(a - b) > 0.0
    p = float(ttest_rel(a, b).pvalue) if testable else None
    return Duel(column.name, column.rival, float(np.mean(a - b)), p, len(seeds))


def _same_order(a: Number, b: Number) -> bool:
    theirs = (a.paper or 0.0) - (b.paper or 0.0)
    return abs(theirs) < APART or theirs * (a.mean - b.mean) > 0.0
