"""Runs side by side: those that differ only by their seed are one curve, with a band."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestegg.errors import InputError
from nestegg.report.charts import comparison_chart, definition_of
from nestegg.report.comparison import HEADS, Results
from nestegg.runs.comparison import measure_of, values_of
from nestegg.studio.runs import Run

MOST = 100  # runs in one chart


def compared(runs: Sequence[Run]) -> dict[str, Any]:
    """Return a chart of several runs, a table of what they have come to, and what is to be known of it.

    Raises:
        InputError: there are too many, or none has measured anything on public test data.
    """
    if len(runs) > MOST:
        raise InputError(f"run is given {len(runs)} times; a chart takes at most {MOST} runs.")
    begun = [run for run in runs if run.lines]
    said = [f"{run.path} has no round yet." for run in runs if not run.lines]
    if not begun:
        raise InputError("none of these runs has a round yet.")
    measure = measure_of(begun[0].lines)
    curves: dict[str, list[list[float]]] = {}
    names = _names(begun)
    for run in begun:
        values = _finite(run, measure)
        if values is None:
            said.append(f"{run.path} is left out: it has no {measure} on public test data in every round.")
        else:
            curves.setdefault(names[_kin(run)], []).append(values)
    if not curves:
        raise InputError("none of these runs has measured anything on public test data in every round.")
    said += [f"Runs of {name} have come to different rounds: the shortest counts." for name in _uneven(curves)]
    said += dict.fromkeys(f"{run.about.note.capitalize()}." for run in begun if run.about.note)
    results = Results(_even(curves), measure, "", 0, None)
    chart = comparison_chart(results.curves, measure, results.label)
    table = {"heads": HEADS, "rows": results.rows()}
    return {"label": results.label, "said": said, **table, "charts": {"comparison": definition_of(chart)}}


def _kin(run: Run) -> tuple[str, str]:
    """What runs share that differ by their seed alone; one that was planned anew has another plan."""
    return run.about.kin, run.plan.digest


def _names(runs: Sequence[Run]) -> dict[tuple[str, str], str]:
    """A name for all runs of a kin: the last part of the first one's path, or all of it where others have the same."""
    full: dict[tuple[str, str], str] = {}
    for run in runs:
        full.setdefault(_kin(run), run.name)
    short = [name.rpartition("/")[2] for name in full.values()]
    if len(set(short)) == len(short):
        return dict(zip(full, short, strict=True))
    return dict(zip(full, _distinct(list(full.values())), strict=True))


def _distinct(names: Sequence[str]) -> Iterator[str]:
    for number, name in enumerate(names, 1):
        yield f"{name} ({number})" if names.count(name) > 1 else name


def _finite(run: Run, measure: str) -> list[float] | None:
    """What a run has measured in every round, or None where a number is missing."""
    try:
        values = values_of(run.lines, measure)
    except KeyError:
        return None
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def _uneven(curves: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    return [name for name, seeds in curves.items() if len({len(curve) for curve in seeds}) > 1]


def _even(curves: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, NDArray[np.float64]]:
    shortest = {name: min(map(len, seeds)) for name, seeds in curves.items()}
    return {name: np.array([curve[: shortest[name]] for curve in seeds]) for name, seeds in curves.items()}
