"""What a comparison of methods looks like: tables, a chart with a band over the seeds, and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestegg.files import write_atomically
from nestegg.planning import COMPARED
from nestegg.report.charts import Picture, comparison_chart, method_colours, save_charts
from nestegg.report.frame import Part, facts, make_page
from nestegg.report.markup import as_csv, as_html

HEADS = ("method", "mean", "± std", "gap to FedAvg", "seeds")


@dataclass(frozen=True, eq=False)
class Results:
    """What methods have come to.

    Attributes:
        curves: what was measured on public test data after every round, by method: (seeds, rounds).
        measure: what that is: accuracy in percent, loss, or a metric by its name.
        dataset: what the methods were compared on.
        first_seed: of the first row of each curve; the others follow.
        note: what every file says about its release.
    """

    curves: Mapping[str, NDArray[np.float64]]
    measure: str
    dataset: str
    first_seed: int
    note: str | None

    @property
    def label(self) -> str:
        """What is measured, for people."""
        return "test accuracy, %" if self.measure == "accuracy" else f"test {self.measure}"

    @property
    def digits(self) -> int:
        """Decimals that are shown."""
        return 2 if self.measure == "accuracy" else 4

    def finals(self) -> dict[str, NDArray[np.float64]]:
        """Return what was measured after the last round, by method: a number a seed."""
        return {method: curve[:, -1] for method, curve in self.curves.items()}

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row a method, for people: mean and standard deviation at the end, and the gap to FedAvg."""
        finals, digits = self.finals(), self.digits
        plain = next((final.mean() for method, final in finals.items() if not _is_private(method)), None)
        rows: list[tuple[str, ...]] = []
        for method, final in finals.items():
            spread = f"{final.std(ddof=1):.{digits}f}" if final.size > 1 else "–"
            gap = "–" if plain is None or not _is_private(method) else f"{final.mean() - plain:+.{digits}f}"
            rows.append((method, f"{final.mean():.{digits}f}", spread, gap, str(final.size)))
        return rows


def write_comparison(folder: Path, results: Results) -> list[Path]:
    """Write all files of a comparison, and return their paths, the page first."""
    note, curves = results.note, results.curves
    tidy = [
        (method, results.first_seed + row, round_, value)
        for method, values in curves.items()
        for row, curve in enumerate(values.tolist())
        for round_, value in enumerate(curve, 1)
    ]
    chart = comparison_chart(curves, results.measure, results.label)
    picture = save_charts(folder, {"comparison": chart}, note)["comparison"]
    heads, more = (("note",), (note,)) if note else ((), ())
    rows, summary = ([(*row, *more) for row in table] for table in (tidy, _summary(results)))
    values = {method: values.tolist() for method, values in curves.items()}
    contents = {
        "comparison.html": _page(results, picture),
        "comparison.csv": as_csv(("method", "seed", "round", results.measure, *heads), rows),
        "comparison-summary.csv": as_csv(("method", "mean", "standard_deviation", "seeds", *heads), summary),
        "comparison.json": json.dumps(values | ({"note": note} if note else {})) + "\n",
    }
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in (*contents, "comparison.png", "comparison.svg")]


def _is_private(method: str) -> bool:
    """Whether a method has noise, as those have that are not ours."""
    return method not in COMPARED or COMPARED[method].is_private


def _summary(results: Results) -> list[tuple[str, str, str, int]]:
    digits = results.digits + 1
    return [
        (
            method,
            f"{final.mean():.{digits}f}",
            f"{final.std(ddof=1) if final.size > 1 else 0.0:.{digits}f}",
            final.size,
        )
        for method, final in results.finals().items()
    ]


def _page(results: Results, picture: Picture) -> str:
    note, measure = results.note, results.measure
    seeds, rounds = next(iter(results.curves.values())).shape
    warning = f'<p class="note">{escape(note.capitalize())}.</p>' if note else ""
    counts = [("methods", len(results.curves)), ("seeds", seeds), ("rounds", rounds)]
    numbers = facts([*((name, str(count)) for name, count in counts), *_best(results)])
    first = results.first_seed
    which = f"Seeds {first} to {first + seeds - 1}" if seeds > 1 else f"Seed {first}"
    how = f"<p>{which}. With one seed, all methods have the same partition of the data and the same first model.</p>"
    band = " Bands reach from the lowest seed to the highest." if seeds > 1 else ""
    what = "Test accuracy in percent" if measure == "accuracy" else f"Test {escape(measure)}"
    parts = [
        Part(
            f"Final {escape(measure)}",
            f"{as_html(HEADS, results.rows(), method_colours(results.curves))}<p>{what} on public data after the last "
            "round; mean and standard deviation over the seeds, and the difference of means to training without "
            f"noise.</p>{_ideas(results)}",
        ),
        Part(f"{escape(measure).capitalize()} over the rounds", f"<p>Mean over the seeds.{band}</p>", [picture]),
    ]
    return make_page(f"{len(results.curves)} methods on {results.dataset}", f"{warning}{numbers}{how}", parts)


def _ideas(results: Results) -> str:
    """What each method does, as far as it is ours."""
    known = [COMPARED[method] for method in results.curves if method in COMPARED]
    return f"<ul>{''.join(f'<li><b>{one.name}</b>: {escape(one.idea)}.</li>' for one in known)}</ul>" if known else ""


def _best(results: Results) -> list[tuple[str, str]]:
    """Who is ahead with privacy, where it is known whether more is better."""
    means = {method: float(final.mean()) for method, final in results.finals().items() if _is_private(method)}
    if results.measure == "accuracy":
        return [("most accurate with privacy", max(means, key=lambda method: means[method], default="–"))]
    if results.measure == "loss":
        return [("lowest loss with privacy", min(means, key=lambda method: means[method], default="–"))]
    return []
