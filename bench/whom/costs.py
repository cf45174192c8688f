"""What privacy costs labels, budgets and clients, in points: what FedAvg recognises minus what the recipe does.

Written down before it was run: the strict pay more in a row if the 95 % interval of what their group pays minus what
the group with the largest budget pays, over the seeds, is above zero, and less if it is below. Groups are as random as
the partition, so nothing but budgets can make the difference. Labels and clients are described, not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from bench.whom.shares import EXPERIMENT, WITH, WITHOUT, Shares, config_of
from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.experiments.cells import plan_of
from nestegg.experiments.definition import load

Floats = NDArray[np.float64]
GARMENTS = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
THINGS = ("aeroplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry")
LABELS = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": GARMENTS,
    "cifar10": THINGS,
    "adult": ("up to $50,000", "above"),
}


@dataclass(frozen=True)
class Costs:
    """What privacy costs in a row.

    Attributes:
        row: its name.
        title: of the row.
        hashes: of both configurations.
        names: of labels.
        without: share of each label that is recognised without privacy.
        labels: what each pays: a line for every seed.
        clients: what each pays: a line for every seed.
        groups: what the clients of each budget pay on average, the strictest first: seed by seed.
    """

    row: str
    title: str
    hashes: tuple[str, str]
    names: tuple[str, ...]
    without: Floats
    labels: Floats
    clients: Floats
    groups: tuple[Floats, ...]

    @property
    def lead(self) -> Floats:
        """What the strictest pay more than those with the largest budget: mean, and the ends of its interval."""
        more = self.groups[0] - self.groups[-1]
        ends = ttest_1samp(more, 0.0).confidence_interval(0.95)
        return np.array([more.mean(), ends.low, ends.high])

    @property
    def by_label(self) -> Floats:
        """What each label pays, over the seeds."""
        mean: Floats = self.labels.mean(axis=0)
        return mean

    @property
    def tenth(self) -> float:
        """What the tenth of the clients pay who pay most in their run."""
        return float(np.sort(self.clients, axis=1)[:, -max(1, self.clients.shape[1] // 10) :].mean())

    @property
    def gaining(self) -> float:
        """Share of clients for whom the private model is better."""
        return float((self.clients < 0.0).mean())


def all_costs(kept: Shares) -> list[Costs]:
    """Return what privacy costs in every row that was measured."""
    experiment, found = load(EXPERIMENT), []
    for row in (row for row in experiment.rows if row.name in kept.shares):
        ways = kept.shares[row.name]
        before, after = ([*ways[name].values()] for name in (WITHOUT, WITH))
        clients = np.subtract([one.clients for one in before], [one.clients for one in after])
        plan = plan_of(config_of(experiment, row, WITH, 0))
        ends = np.cumsum([one.group.clients for one in plan.groups])[:-1]
        paid = zip((one.group.budget.epsilon for one in plan.groups), np.split(clients, ends, axis=1), strict=True)
        found.append(
            Costs(
                row.name,
                row.label,
                (before[0].hash, after[0].hash),
                LABELS[experiment.dataset(row)],
                np.mean([one.labels for one in before], axis=0),
                np.subtract([one.labels for one in before], [one.labels for one in after]),
                clients,
                tuple(part.mean(axis=1) for _, part in sorted(paid, key=lambda one: one[0])),
            )
        )
    return found


def answer(costs: Sequence[Costs], asked: str) -> str:
    """Return the number that a link asks for: `mnist: dearest label`, or a range of several rows."""
    rows, _, what = asked.partition(": ")
    one_of(f"whom.md: {asked!r}", what, _ANSWERS)
    chosen = [one for one in costs if any(fnmatchcase(one.row, row) for row in rows.split(", "))]
    if not chosen:
        raise InputError(f"whom.md: {asked!r} asks for a row that was not measured.")
    return _ANSWERS[what](chosen).replace("-", "−")


def _range(value: Callable[[Costs], float]) -> Callable[[Sequence[Costs]], str]:
    def said(costs: Sequence[Costs]) -> str:
        low, high = (f"{pick(map(value, costs)):z.1f}" for pick in (min, max))
        return low if low == high else f"{low} to {high}"

    return said


def _count(holds: Callable[[Costs], bool]) -> Callable[[Sequence[Costs]], str]:
    return lambda costs: f"{sum(map(holds, costs))} of {len(costs)}"


_ANSWERS: dict[str, Callable[[Sequence[Costs]], str]] = {
    "all clients": _range(lambda one: float(one.clients.mean())),
    "a tenth": _range(lambda one: one.tenth),
    "strictest minus largest": _range(lambda one: float(one.lead[0])),
    "the strict pay more": _count(lambda one: bool(one.lead[1] > 0.0)),
    "the strict pay less": _count(lambda one: bool(one.lead[2] < 0.0)),
    "dearest label": _range(lambda one: float(one.by_label.max())),
    "cheapest label": _range(lambda one: float(one.by_label.min())),
    "gain": _range(lambda one: 100.0 * one.gaining),
}


def budget_rows(costs: Sequence[Costs]) -> Iterator[list[str]]:
    """Yield what each budget's clients pay, and whether the strict pay more."""
    for one in costs:
        lead, low, high = one.lead
        said = "more" if low > 0 else "less" if high < 0 else "cannot tell"
        groups = (f"{values.mean():.2f}" for values in one.groups)
        yield [one.title, *groups, f"{lead:+z.2f}", f"{low:+z.2f} to {high:+z.2f}", said, _small(one)]


def label_rows(costs: Sequence[Costs]) -> Iterator[list[str]]:
    """Yield the label that pays least and the one that pays most, of what is recognised of it without privacy."""
    for one in costs:
        ends = int(one.by_label.argmin()), int(one.by_label.argmax())
        yield [
            one.title,
            *(f"{one.names[i]}: {one.by_label[i]:.1f} of {one.without[i]:.1f}" for i in ends),
            _small(one),
        ]


def client_rows(costs: Sequence[Costs]) -> Iterator[list[str]]:
    """Yield what all clients pay, what the tenth that pays most does, and how many gain."""
    for one in costs:
        yield [one.title, f"{one.clients.mean():.2f}", f"{one.tenth:.2f}", f"{one.gaining:.0%}", _small(one)]


def _small(one: Costs) -> str:
    return f"<small>{' '.join(one.hashes)}</small>"
