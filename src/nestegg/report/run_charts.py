"""Charts of what a run's rounds told: how good the model becomes, and where a learnt clip norm goes.

What clients say is noisy (side statistics). Dots are what each round told, in a band of two standard deviations of its
noise; the line is a mean of neighbouring rounds. All of it follows from numbers that may be released.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from nestegg.report.charts import PALETTE, lines

Rounds = Sequence[dict[str, Any]]
Array = NDArray[np.float64]

REACH = 2  # rounds before and after a round that go into its mean
_SOURCE, _PUBLIC, _CLIENTS = "measured on", "public test data", "clients' own samples, noisy"
_MEASURES = {"accuracy": ("accuracy, %", 100.0), "loss": ("loss", np.inf)}
_SMALL = 150


def quality_charts(rounds: Rounds) -> dict[str, alt.TopLevelMixin]:
    """How good does the model become? Accuracy on public test data, or else loss; without any, both as clients say.

    What clients say stands beside test data, too. They measure the model that a round begins with, so it stands at the
    round before.
    """
    title, charts = "How good does the model become?", dict[str, alt.TopLevelMixin]()
    public = next((name for name in _MEASURES if any(line.get(name) is not None for line in rounds)), None)
    for name in [public] if public else _MEASURES:
        label, largest = _MEASURES[name]
        tested = [{"round": line["round"], name: line[name]} for line in rounds if line.get(name) is not None]
        told = told_rows(rounds, name, largest=largest, shift=-1)
        if told:
            sources = {_PUBLIC: tested, _CLIENTS: told}
            rows = [{**row, _SOURCE: source} for source, some in sources.items() for row in some]
            colours = PALETTE if tested else PALETTE[1:]
            charts[name] = _banded(rows, name, label, by=_SOURCE, colours=colours).properties(title=title)
        elif tested:
            charts[name] = lines(tested, name, f"test {label}", title)
    return charts


def clip_norm_chart(rounds: Rounds, clip_unit: str) -> dict[str, alt.TopLevelMixin]:
    """Where does the learnt clip norm go? In the plan's unit, with the share of updates below it where it is told."""
    if not rounds:
        return {}
    units = [line["learning_rate"] if clip_unit == "gradient" else 1.0 for line in rounds]
    norms = [
        {"round": line["round"], "norm": line["clip_norm"] / unit} for line, unit in zip(rounds, units, strict=True)
    ]
    panels: list[alt.Chart | alt.LayerChart | alt.FacetChart] = [lines(norms, "norm", "clip norm c", None)]
    if below := told_rows(rounds, "below", largest=1.0):
        panels.append(_banded(below, "below", "share of updates below it"))
    small = [panel.properties(height=_SMALL) for panel in panels]
    return {"clip-norm": alt.vconcat(*small, title="Where does the learnt clip norm go?")}


def told_rows(rounds: Rounds, name: str, *, largest: float, shift: int = 0) -> list[dict[str, float]]:
    """Return what clients said of something: its mean with neighbouring rounds, and the dot and band of each round.

    Noise carries numbers beyond what they can be: they are brought back into 0 to the largest, after means are taken.
    """
    told = [(line["round"] + shift, line["side"]) for line in rounds if name in line.get("side", {})]
    values, stds = (np.array([side[key] for _, side in told]) for key in (name, f"{name}_std"))
    columns = {name: smoothed(values, stds)[0], "dot": values, "low": values - 2.0 * stds, "high": values + 2.0 * stds}
    bounded = {key: np.clip(column, 0.0, largest).tolist() for key, column in columns.items()}
    return [{"round": told[t][0], **{key: some[t] for key, some in bounded.items()}} for t in range(len(told))]


def told_last(rounds: Rounds) -> str | None:
    """Return the accuracy that clients say in the end, with the standard deviation of its noise; None without any."""
    told = [line["side"] for line in rounds if "accuracy" in line.get("side", {})]
    if not told:
        return None
    means, stds = smoothed(*(np.array([side[key] for side in told]) for key in ("accuracy", "accuracy_std")))
    return f"{np.clip(means[-1], 0.0, 100.0):.1f} ± {stds[-1]:.1f} %"


def smoothed(values: Array, stds: Array) -> tuple[Array, Array]:
    """Return means of neighbouring values, weighted by the inverse of their variances, and their standard deviations.

    As many come from before as from after, so that a mean does not lag behind a curve that rises; near the start there
    are fewer, as curves rise fast there; near the end it is the last ones, for the last alone may be noise.

    >>> smoothed(np.array([0.0, 3.0, 9.0, 9.0]), np.ones(4))[0]
    array([0.  , 4.  , 5.25, 5.25])
    """
    means, errors, count = np.empty(len(values)), np.empty(len(values)), len(values)
    for t in range(count):
        reach = min(REACH, t)
        end = min(t + reach + 1, count)
        near = slice(max(end - 2 * reach - 1, 0), end)
        weights = stds[near] ** -2.0
        means[t], errors[t] = np.average(values[near], weights=weights), weights.sum() ** -0.5
    return means, errors


def _banded(
    rows: list[dict[str, Any]],
    value: str,
    label: str,
    *,
    by: str | None = None,
    colours: Sequence[str] = PALETTE,
) -> alt.LayerChart | alt.FacetChart:
    """Curves over the rounds, with dots in a band where rows have them."""
    means = lines(rows, value, label, None, by, colours)
    base = means.properties(data=alt.Data(values=[row for row in rows if "dot" in row]))
    bands = base.mark_area(opacity=0.15, strokeWidth=0).encode(y=alt.Y("low:Q", title=label), y2="high:Q")
    told = [alt.Tooltip(f"{key}:Q", format=".4~r") for key in ("dot", "low", "high")]
    dots = base.mark_circle(size=30).encode(y=alt.Y("dot:Q", title=label), tooltip=[alt.Tooltip("round:Q"), *told])
    for layer in (bands, dots):
        layer.encoding.strokeDash = alt.Undefined  # only lines have dashes
    return alt.layer(bands, means, dots)
