"""What an experiment gave: our numbers beside the paper's, and verdicts by stated rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.stats import ttest_1samp

from nestegg.configuration.config import Config
from nestegg.experiments.cells import FORMATS, Cell, Store, hash_of
from nestegg.experiments.definition import Experiment, Row
from nestegg.experiments.scales import configured, stated_reduction

CLOSE, APART, SURE = 3.0, 0.25, 0.05  # the least by which the paper calls a method better is 0.26
NO_NUMBER = "no paper number"
AGREEMENTS = ("agrees in value", "agrees in order", "does not agree")
BEATS, LOSES = "beats rival", "loses to rival"
RULE = (
    f"A row “agrees in value” if each of its accuracies, and each difference between two of them, is within {CLOSE:g} "
    f"points of the paper's; it “agrees in order” if any two methods that the paper puts at least {APART:g} points "
    "apart stand in the same order here; otherwise it “does not agree”. Means over the seeds that all of them have are "
    "compared; where some are missing, the verdict says of how many seeds it is."
)
DUEL_RULE = (
    f"A method “beats” its rival if it is ahead and a paired t-test over the seeds, two-sided, gives p < {SURE:g}, and "
    "“loses” if it is behind so; otherwise one “cannot tell” them apart. Both have the same partition, initial model "
    "and seeds. Unless a table says so, tests are not corrected for their number: of twenty between equals, one is "
    "expected to say so. “Interval only” is a pair for which no test was planned, “one seed only” one for which none "
    "can be made."
)
FORMAT_RULE = (
    "Formats of cells are never mixed: in a table all rows of one dataset show cells of one format, the one that most "
    "of their cells have, the newest if two have as many. A cell of another format is counted, but takes part in no "
    "mean, curve, verdict or test."
)
Found = dict[tuple[str, str], list[dict[int, Cell]]]  # by row and column: for every seed its cells by format
_DIGITS = 3  # of accuracies in cells; what differs by less is equal


@dataclass(frozen=True)
class Number:
    """One entry of a table: the paper's number and ours, seed by seed.

    Attributes:
        paper: what the paper states, if it does.
        hash: of the configuration.
        cells: that are there.
        asked: seeds that should be there.
        measure: of a cell: accuracy or training_loss, after the last round.
        others: seeds that have a cell of another format only.
    """

    paper: float | None
    hash: str
    cells: tuple[Cell, ...]
    asked: int
    measure: str = "accuracy"
    others: int = 0

    @property
    def values(self) -> dict[int, float]:
        """Ours, by seed."""
        finals = ((cell.seed, getattr(cell, self.measure)[-1]) for cell in self.cells)
        return {seed: np.nan if final is None else float(final) for seed, final in finals}

    @property
    def complete(self) -> bool:
        """Whether all seeds that were asked for are there."""
        return len(self.cells) == self.asked

    def over(self, seeds: Collection[int]) -> Number:
        """The same with these seeds only."""
        return replace(self, cells=tuple(cell for cell in self.cells if cell.seed in seeds))

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean([*self.values.values()]))

    @property
    def deviation(self) -> float:
        """Over the seeds; 0 for one."""
        return float(np.std([*self.values.values()], ddof=1)) if len(self.cells) > 1 else 0.0

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return self.mean - self.paper if self.paper is not None and self.cells else None


@dataclass(frozen=True)
class Duel:
    """A method against its rival, over the seeds that both have run with."""

    method: str
    rival: str
    ahead: float
    p: float | None  # none with a single seed, or where differences are equal or not finite
    seeds: int
    hashes: tuple[str, str] = ("", "")
    interval: tuple[float, float] | None = None  # in which the true lead is, in 95 of 100 such experiments
    tested: bool = True

    @property
    def verdict(self) -> str:
        """In at most three words."""
        if not np.isfinite(self.ahead):
            return "not finite"
        if self.seeds == 1:
            return "one seed only"
        if not self.tested:
            return "interval only"
        if self.p is None:
            return "equal differences"
        if self.p >= SURE:
            return "cannot tell"
        return BEATS if self.ahead > 0 else LOSES


@dataclass(frozen=True)
class Line:
    """A row of a table."""

    row: Row
    numbers: dict[str, Number]
    duels: tuple[Duel, ...]

    @property
    def verdict(self) -> str:
        """In at most three words, by the stated rule, of the entries for which the paper has a number."""
        stated, seeds = self._stated, self._shared
        if not stated:
            return NO_NUMBER
        if not seeds:
            return "partly run" if any(number.cells or number.others for number in stated) else "not run"
        compared = [number.over(seeds) for number in stated]
        if _same_values(compared):
            return AGREEMENTS[0]
        pairs = [*combinations(compared, 2)]  # none of one method, which has no order
        return AGREEMENTS[1 if pairs and all(_same_order(a, b) for a, b in pairs) else 2]

    @property
    def note(self) -> str:
        """Of how many seeds the verdict is, where it is not of all."""
        shared, asked = len(self._shared), max((number.asked for number in self._stated), default=0)
        return f"{shared} of {asked} seeds" if 0 < shared < asked else ""

    @property
    def _stated(self) -> list[Number]:
        return [number for number in self.numbers.values() if number.paper is not None]

    @property
    def _shared(self) -> set[int]:
        """Seeds that all entries have for which the paper has a number."""
        seeds = [set(number.values) for number in self._stated]
        return set.intersection(*seeds) if seeds else set()


@dataclass(frozen=True)
class Outcome:
    """An experiment with all that is known of it."""

    name: str
    experiment: Experiment
    scale: str
    lines: tuple[Line, ...]

    @property
    def reductions(self) -> list[str]:
        """What the scale changes, and for which datasets; a sentence for every way in which a setting is changed."""
        datasets: dict[str, dict[str, None]] = {}
        for line in self.lines:
            setting = self.experiment.cell(line.row, self.experiment.columns[0])
            datasets.setdefault(stated_reduction(setting, self.scale), {})[setting.dataset] = None
        return [f"{', '.join(known)}: {sentence}" for sentence, known in datasets.items()]

    @property
    def formats(self) -> list[str]:
        """Which formats its cells have, dataset by dataset; how many cells of another format are not shown."""
        shown: dict[str, int] = {}
        others: Counter[str] = Counter()
        for line in self.lines if self.experiment.trains else ():
            dataset = self.experiment.dataset(line.row)
            for number in line.numbers.values():
                others[dataset] += number.others
                if number.cells:
                    shown[dataset] = number.cells[0].format
        kinds = {form: ", ".join(dataset for dataset in shown if shown[dataset] == form) for form in FORMATS}
        left = [f"{dataset}: {n} cells of another format are not shown." for dataset, n in others.items() if n]
        return [f"{kinds[form]}: cells of format {form} ({FORMATS[form]})." for form in FORMATS if kinds[form]] + left


def configs_of(experiment: Experiment, scale: str) -> dict[tuple[str, str], list[Config]]:
    """Every cell's configuration, by row, column and seed."""
    return {
        (row.name, column.name): [configured(experiment.cell(row, column), scale, seed) for seed in experiment.seeds]
        for row in experiment.shown_rows()
        for column in experiment.columns
    }


def outcome_of(name: str, experiment: Experiment, scale: str, store: Store) -> Outcome:
    """Read the cells that are there."""
    configs = configs_of(experiment, scale)
    found = {key: [store.find(config) for config in some] for key, some in configs.items()}
    formats = _formats(experiment, found)
    asked, measure = len(experiment.seeds), experiment.measure
    lines = []
    for row in experiment.shown_rows():
        form = formats[experiment.dataset(row)]
        numbers = {}
        for column in experiment.columns:
            key, paper = (row.name, column.name), row.paper.get(column.name)
            cells = tuple(cells[form] for cells in found[key] if form in cells)
            others = sum(bool(cells) and form not in cells for cells in found[key])
            numbers[column.name] = Number(paper, hash_of(configs[key][0]), cells, asked, measure, others)
        duels = [paired(column.name, rival, numbers) for column in experiment.columns for rival in column.rivals]
        beside = [paired(column.name, other, numbers) for column in experiment.columns for other in column.beside]
        untested = [replace(duel, p=None, tested=False) for duel in beside if duel is not None]
        lines.append(Line(row, numbers, (*(duel for duel in duels if duel is not None), *untested)))
    tests = experiment.family or len(experiment.rows)
    return Outcome(name, experiment, scale, tuple(_holm(lines, tests) if experiment.holm else lines))


def _holm(lines: Sequence[Line], tests: int) -> list[Line]:
    """The same with every p corrected for so many tests of a method against a rival, also where some are not run."""
    raw: dict[tuple[str, str], list[float]] = {}
    for duel in (duel for line in lines for duel in line.duels if duel.p is not None):
        raw.setdefault((duel.method, duel.rival), []).append(duel.p or 0.0)
    held = {pair: dict(zip(ps, holm(ps, tests), strict=True)) for pair, ps in raw.items()}

    def corrected(duel: Duel) -> Duel:
        return duel if duel.p is None else replace(duel, p=held[duel.method, duel.rival][duel.p])

    return [replace(line, duels=tuple(map(corrected, line.duels))) for line in lines]


def holm(ps: Sequence[float], tests: int | None = None) -> list[float]:
    """Return p-values of several tests, corrected for their number, or that of all of which these are some (Holm 1979).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(ps)
    steps = np.maximum.accumulate(np.array(ps)[order] * (max(tests or 0, len(ps)) - np.arange(len(ps))))
    result = np.empty(len(ps))
    result[order] = np.minimum(steps, 1.0)
    return [float(p) for p in result]


def _formats(experiment: Experiment, found: Found) -> dict[str, int]:
    """Return, by dataset, the format that most cells of its rows have; the newest if several do."""
    counts: dict[str, Counter[int]] = {}
    for row in experiment.shown_rows():
        count = counts.setdefault(experiment.dataset(row), Counter())
        for column in experiment.columns:
            count.update(form for cells in found[row.name, column.name] for form in cells)
    return {dataset: max(FORMATS, key=count.__getitem__) for dataset, count in counts.items()}


def paired(method: str, rival: str, numbers: dict[str, Number]) -> Duel | None:
    """Return how a method fares against another, over the seeds that both have; none without any."""
    number, other = numbers[method], numbers[rival]
    ours, theirs = number.values, other.values
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    better = 1.0 if number.measure == "accuracy" else -1.0  # a loss is better when it is less
    ahead = better * np.array([ours[seed] - theirs[seed] for seed in seeds]).round(_DIGITS)
    hashes = (number.hash, other.hash)
    if len(seeds) == 1 or not np.ptp(ahead) > 0.0:
        return Duel(method, rival, float(ahead.mean()), None, len(seeds), hashes)
    test = ttest_1samp(ahead, 0.0)
    low, high = test.confidence_interval(0.95)
    return Duel(method, rival, float(ahead.mean()), float(test.pvalue), len(seeds), hashes, (float(low), float(high)))


def _same_values(numbers: Sequence[Number]) -> bool:
    """Whether no accuracy, and no difference between two, is far from the paper's."""
    apart = [number.difference or 0.0 for number in numbers]
    return max(map(abs, apart)) <= CLOSE and max(apart) - min(apart) <= CLOSE


def _same_order(a: Number, b: Number) -> bool:
    theirs = (a.paper or 0.0) - (b.paper or 0.0)
    return abs(theirs) < APART or theirs * (a.mean - b.mean) > 0.0
