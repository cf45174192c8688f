"""What a comparison of methods looks like: tables, a chart with a band over the seeds, and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
# Accuracy in percent, by method: (seeds, rounds).
Curves = Mapping[str, NDArray[np.float64]]


def final_rows(curves: Curves) -> list[tuple[str, ...]]:
    """Return a row a method: mean and standard deviation of its final accuracy, and the gap to FedAvg."""
    plain = next((accuracy for method, accuracy in curves.items() if not _is_private(method)), None)
    best = None if plain is None else plain[:, -1].mean()
    rows: list[tuple[str, ...]] = []
    for method, accuracy in curves.items():
        final = accuracy[:, -1]
        spread = f"{final.std(ddof=1):.2f}" if final.size > 1 else "–"
        gap = "–" if best is None or not _is_private(method) else f"{final.mean() - best:+.2f}"
        rows.append((method, f"{final.mean():.2f}", spread, gap, str(final.size)))
    return rows


def write_comparison(folder: Path, curves: Curves, dataset: str, first_seed: int, note: str | None) -> list[Path]:
    """Write all files of a comparison, and return their paths, the page first.

    Args:
        folder: where to.
        curves: accuracy in percent by method, a row a seed.
        dataset: what the methods were compared on.
        first_seed: of the first row; the others follow.
        note: what every file says about its release.
    """
    tidy = [
        (method, first_seed + row, round_, value)
        for method, accuracy in curves.items()
        for row, curve in enumerate(accuracy.tolist())
        for round_, value in enumerate(curve, 1)
    ]
    pictures = save_charts(folder, {"comparison": comparison_chart(curves)}, note)
    heads, more = (("note",), (note,)) if note else ((), ())
    rows, summary = ([(*row, *more) for row in table] for table in (tidy, _summary(curves)))
    accuracies = {method: accuracy.tolist() for method, accuracy in curves.items()}
    contents = {
        "comparison.html": _page(curves, dataset, first_seed, note, pictures["comparison"]),
        "comparison.csv": as_csv(("method", "seed", "round", "accuracy", *heads), rows),
        "comparison-summary.csv": as_csv(("method", "mean", "standard_deviation", "seeds", *heads), summary),
        "comparison.json": json.dumps(accuracies | ({"note": note} if note else {})) + "\n",
    }
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in (*contents, "comparison.png", "comparison.svg")]


def _is_private(method: str) -> bool:
    """Whether a method has noise, as those have that are not ours."""
    return method not in COMPARED or COMPARED[method].is_private


def _summary(curves: Curves) -> list[tuple[str, str, str, int]]:
    finals = [(method, accuracy[:, -1]) for method, accuracy in curves.items()]
    return [
        (method, f"{final.mean():.3f}", f"{final.std(ddof=1) if final.size > 1 else 0.0:.3f}", final.size)
        for method, final in finals
    ]


def _page(curves: Curves, dataset: str, first_seed: int, note: str | None, picture: Picture) -> str:
    seeds, rounds = next(iter(curves.values())).shape
    warning = f'<p class="note">{escape(note.capitalize())}.</p>' if note else ""
    private = [method for method in curves if _is_private(method)]
    best = max(private, key=lambda method: float(curves[method][:, -1].mean()), default="–")
    counts = [("methods", len(curves)), ("seeds", seeds), ("rounds", rounds)]
    numbers = facts([*((name, str(count)) for name, count in counts), ("most accurate with privacy", best)])
    which = f"Seeds {first_seed} to {first_seed + seeds - 1}" if seeds > 1 else f"Seed {first_seed}"
    how = f"<p>{which}. With one seed, all methods have the same partition of the data and the same first model.</p>"
    band = " Bands reach from the lowest seed to the highest." if seeds > 1 else ""
    parts = [
        Part(
            "Final accuracy",
            f"{as_html(HEADS, final_rows(curves), method_colours(curves))}"
            "<p>Test accuracy in percent on public data after the last round; mean and standard deviation over the "
            "seeds, and the difference of means to training without noise.</p>",
        ),
        Part("Accuracy over the rounds", f"<p>Mean over the seeds.{band}</p>", [picture]),
    ]
    return make_page(f"{len(curves)} methods on {dataset}", f"{warning}{numbers}{how}", parts)
