"""Trials that were run, kept as small files, one for each idea, so that an interrupted evening goes on."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from bench.trials.engine import equipped, train
from bench.trials.idea import Idea
from bench.trials.settings import config_of, data_of, digest_of, plan_of
from nestegg.errors import InputError
from nestegg.files import make_folder, write_atomically
from nestegg.runs import Simulation
from nestegg.schema import Section, read
from nestegg.training import Evaluation

FORMAT = 1


class Trial(Section):
    """What one run gave.

    Attributes:
        hash: of the configuration without its seed.
        accuracy: on validation data after the last round, in percent.
        seconds: how long it took.
    """

    hash: str
    accuracy: float
    seconds: float


class Cells:
    """A folder of trials: a file for each idea, in it rows, in these seeds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, dict[str, dict[str, Trial]]] = {}

    def get(self, name: str, idea: Idea, row: str, seed: int) -> Trial | None:
        """Return a trial; none if it was not run, or with other settings."""
        found = self._of(name, idea).get(row, {}).get(str(seed))
        return found if found is not None and found.hash == digest_of(row, idea) else None

    def put(self, name: str, idea: Idea, row: str, seed: int, *, trial: Trial) -> None:
        """Keep a trial: whole, or not at all."""
        rows = self._of(name, idea)
        rows.setdefault(row, {})[str(seed)] = trial
        make_folder("--results", self.folder)
        content = {
            "format": FORMAT,
            "idea": described(idea),
            "trials": {one: {n: t.model_dump() for n, t in sorted(rows[one].items())} for one in sorted(rows)},
        }
        write_atomically(self._path(name), json.dumps(content, indent=1) + "\n")

    def _of(self, name: str, idea: Idea) -> dict[str, dict[str, Trial]]:
        """All trials of an idea; one whose values have changed is another, and has none."""
        if name not in self._known:
            path = self._path(name)
            try:
                content = json.loads(path.read_bytes()) if path.exists() else {}
            except ValueError:
                raise InputError(f"{path} is no JSON; remove it, and its trials are run again.") from None
            known = (content.get("format"), content.get("idea")) == (FORMAT, described(idea))
            rows = content["trials"].items() if known else ()
            self._known[name] = {
                row: {seed: read(Trial, trial, path.name) for seed, trial in trials.items()} for row, trials in rows
            }
        return self._known[name]

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def described(idea: Idea) -> dict[str, Any]:
    """Return an idea's class and its values."""
    values: dict[str, Any] = asdict(idea) if is_dataclass(idea) and not isinstance(idea, type) else {}
    return {"class": type(idea).__name__, **values}


def run(idea: Idea, row: str, seed: int, data: Path) -> Trial:
    """Train one trial."""
    started = time.perf_counter()
    config = config_of(row, idea, seed, data)
    dataset = data_of(config)
    federation = equipped(Simulation(config, plan_of(config), dataset).federation, idea)
    found = federation.measured(train(federation, idea), Evaluation(dataset.test_x, dataset.test_y))
    seconds = round(time.perf_counter() - started, 1)
    return Trial(hash=digest_of(row, idea), accuracy=round(found.accuracy or 0.0, 3), seconds=seconds)
