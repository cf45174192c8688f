"""How the cost of a round grows with clients, cohort, parameters and rounds, measured on federations of one kind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

import altair as alt

from nestegg.bench.process import Process
from nestegg.bench.simulators import python_of, simulators
from nestegg.bench.works import Recipe, random_clients, write_work
from nestegg.files import write_atomically
from nestegg.models.networks import HIDDEN
from nestegg.report.charts import PALETTE, save_charts
from nestegg.report.markup import as_csv
from nestegg.training import LocalTraining

_ROUNDS = 5
_TRAINING = LocalTraining(1, 10, 0.05, schedule="constant")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One federation: what was varied, to what, and what a round took; for rounds, what all of them took."""

    varied: str
    value: int
    seconds: float
    megabytes: float


def _digits_like(clients: int, sampled: int, features: int = 64) -> Recipe:
    return Recipe(
        f"{clients} clients of 10 samples, {sampled} of them sampled, {features}-32-10, one epoch of one batch",
        "mlp",
        _TRAINING,
        sampled / clients,
        lambda _: random_clients(clients, 10, 10, (features,), 10),
    )


SERIES: dict[str, tuple[str, dict[int, Recipe]]] = {
    "clients": ("clients enrolled, 100 sampled", {n: _digits_like(n, 100) for n in (100, 1_000, 10_000, 100_000)}),
    "cohort": ("clients sampled of 100,000", {n: _digits_like(100_000, n) for n in (100, 1_000, 10_000, 100_000)}),
    "parameters": (
        "trainable parameters, 100 clients sampled",
        {(n + 1) * HIDDEN + (HIDDEN + 1) * 10: _digits_like(100, 100, n) for n in (16, 64, 256, 1_024, 4_096, 16_384)},
    ),
}
ROUNDS = (1, 10, 100, 1_000)


def growth(cache: Path, say: Say = lambda _: None) -> Iterator[Point]:
    """Measure every series, federation by federation, each in a process of its own."""
    ours = simulators(1)[0]
    for varied, (_, recipes) in SERIES.items():
        for value, made in recipes.items():
            say(f"{varied}: {value:,} …")
            with tempfile.TemporaryDirectory() as folder:
                write_work(made, Path(folder), _ROUNDS)
                with Process(ours, ours.modes[0], python_of(ours, cache), Path(folder)) as process:
                    memory = process.peak_memory(1)
                    seconds = median(process.round(t) for t in range(1, _ROUNDS + 1))
            yield Point(varied, value, seconds, memory / 1e6)
    with tempfile.TemporaryDirectory() as folder:
        write_work(_digits_like(1_000, 100), Path(folder), ROUNDS[-1])
        with Process(ours, ours.modes[0], python_of(ours, cache), Path(folder)) as process:
            process.round(1)
            passed = 0.0
            for t in range(1, ROUNDS[-1] + 1):
                passed += process.round(t)
                if t in ROUNDS:
                    say(f"rounds: {t:,} …")
                    yield Point("rounds", t, passed, process.peak_memory(t) / 1e6)


def save_growth(folder: Path, points: list[Point]) -> None:
    """Write the points as CSV, and a chart of them."""
    heads = [field.name for field in fields(Point)]
    write_atomically(folder / "growth.csv", as_csv(heads, (astuple(point) for point in points)))
    save_charts(folder, {"growth": growth_chart(points)})


def _axis(values: list[float]) -> alt.Axis:
    return alt.Axis(values=values, format=".2~s", labelOverlap=False)


def growth_chart(points: list[Point]) -> alt.VConcatChart:
    """What does a larger federation cost? Seconds a round, on logarithmic axes; for rounds, seconds in all."""
    titles = {**{name: title for name, (title, _) in SERIES.items()}, "rounds": "rounds of 100 clients: seconds in all"}
    panels = []
    for name, title in titles.items():
        rows = [{"value": p.value, "seconds": p.seconds} for p in points if p.varied == name]
        panels.append(
            alt.Chart(alt.Data(values=rows), width=210, height=180)
            .mark_line(point=True, strokeWidth=2, color=PALETTE[0])
            .encode(
                x=alt.X(
                    "value:Q", scale=alt.Scale(type="log"), title=title, axis=_axis([row["value"] for row in rows])
                ),
                y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="seconds"),
            )
        )
    chart: alt.VConcatChart = alt.vconcat(alt.hconcat(*panels[:2]), alt.hconcat(*panels[2:])).properties(
        title="What does a larger federation cost?"
    )
    return chart
