"""Several methods on the same partition and the same initial model, seed by seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestegg.checks import one_of, whole
from nestegg.config import Config, check_config
from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.report.charts import comparison_chart, save_charts
from nestegg.report.tables import as_csv
from nestegg.roster import make_plan
from nestegg.runs import Task, start_run
from nestegg.runs.payment import check_ledger
from nestegg.training import RoundReport

# A method by name; the two compositions and the smallest-budget variants of the paper's own method are told apart.
VARIANTS: dict[str, dict[str, str]] = {
    "fedavg": {"method": "fedavg"},
    "dp-fedavg": {"method": "dp-fedavg"},
    "idp-fedavg": {"method": "idp-fedavg"},
    "idp-fedavg-pld": {"method": "idp-fedavg", "accountant": "pld"},
    "adaptive-clipping": {"method": "adaptive-clipping"},
    "paper": {"method": "spend-as-you-go", "composition": "paper"},
    "exact": {"method": "spend-as-you-go", "composition": "exact"},
    "exact-pld": {"method": "spend-as-you-go", "composition": "exact", "accountant": "pld"},
    "paper-smallest": {"method": "spend-as-you-go", "composition": "paper", "budgets": "smallest"},
    "exact-smallest": {"method": "spend-as-you-go", "composition": "exact", "budgets": "smallest"},
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """Accuracy of one method: (seeds, rounds)."""

    name: str
    accuracy: NDArray[np.float64]

    @property
    def final(self) -> NDArray[np.float64]:
        """Accuracy after the last round, seed by seed."""
        return self.accuracy[:, -1]


def compare(
    config: Config,
    names: Sequence[str],
    seeds: int,
    folder: Path,
    on_round: Callable[[str, int, RoundReport], None] | None = None,
) -> list[Outcome]:
    """Run every method with every seed, and write runs, a table and a chart into a folder that must not exist yet."""
    check_config(config)
    whole("seeds", seeds, 1)
    if not names or len(set(names)) < len(names):
        raise InputError(f"methods = {','.join(names)!r} must name at least one method, and none twice.")
    for name in names:
        one_of("methods", name, VARIANTS)
        tried = variant(config, name, config.training.seed)
        plan = make_plan(tried)
        Task(tried, plan)
        check_ledger(tried, plan)
    if folder.exists():
        raise InputError(f"{folder} exists; give another folder.")
    outcomes = []
    for name in names:
        curves = []
        for seed in range(config.training.seed, config.training.seed + seeds):
            reports: list[RoundReport] = []

            def record(
                report: RoundReport, seed: int = seed, name: str = name, to: list[RoundReport] = reports
            ) -> None:
                to.append(report)
                if on_round is not None:
                    on_round(name, seed, report)

            start_run(variant(config, name, seed), folder / f"{name}-{seed}", record)
            curves.append([report.accuracy for report in reports])
        outcomes.append(Outcome(name, np.array(curves, np.float64)))
    _write(folder, outcomes)
    return outcomes


def variant(config: Config, name: str, seed: int) -> Config:
    """The configuration with another method and seed; keys of other methods are dropped."""
    privacy = config.privacy.model_copy(update=VARIANTS[name])
    fields = privacy.model_fields_set - {"shape", "end_ratio", "adaptive"}
    if name == "adaptive-clipping":
        fields |= {"adaptive"}
    privacy = privacy.model_construct(fields, **dict(privacy))
    training = config.training.model_copy(update={"seed": seed})
    return config.model_copy(update={"privacy": privacy, "training": training})


def _write(folder: Path, outcomes: Sequence[Outcome]) -> None:
    content = {outcome.name: outcome.accuracy.tolist() for outcome in outcomes}
    write_atomically(folder / "comparison.json", json.dumps(content) + "\n")
    rows = [(o.name, f"{o.final.mean():.3f}", f"{deviation(o):.3f}", o.final.size) for o in outcomes]
    heads = ("method", "mean", "standard_deviation", "seeds")
    write_atomically(folder / "comparison.csv", as_csv(heads, rows))
    save_charts(folder, {"comparison": comparison_chart({o.name: o.accuracy for o in outcomes})})


def deviation(outcome: Outcome) -> float:
    """Standard deviation over the seeds; 0 for one seed."""
    return float(outcome.final.std(ddof=1)) if outcome.final.size > 1 else 0.0
