"""Runs below a folder, as their files show them. Nothing is read from their private parts, and nothing is imported."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nestegg.configuration.description import CONFIG, RUN, Description
from nestegg.errors import InputError, VerificationError
from nestegg.planning import Plan, remarks
from nestegg.report.run_charts import told_last
from nestegg.runs.comparison import measure_of
from nestegg.runs.folder import RunFolder
from nestegg.studio.place import PRIVATE, Place

MOST_FOLDERS = 20_000  # that are looked into; a start folder with more of them is not a folder of runs
SEEN = (CONFIG, RUN, "plan.json", "rounds.jsonl", "summary.json", "report.html", "audit.json")


@dataclass(frozen=True, eq=False)
class Run:
    """What the files of a run say.

    Attributes:
        path: below the start folder.
        about: what it is.
        plan: in force.
        rounds: lines of rounds.jsonl, read.
        lines: the same as they are written.
        summary: what it had come to when it last ended by itself.
    """

    path: str
    about: Description
    plan: Plan
    rounds: tuple[dict[str, Any], ...]
    lines: tuple[str, ...]
    summary: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """How people call it: its path, without a seed at the end, as comparisons name folders."""
        return self.path.removesuffix(f"-{self.about.seed}")

    def state(self, folder: RunFolder) -> tuple[str, str]:
        """Return running, finished, stopped or interrupted, and a sentence on how it goes on."""
        done, rounds = len(self.rounds), self.plan.rounds
        if folder.is_in_use():
            return "running", f"Round {done + 1} of {rounds}." if done < rounds else "Its report is being written."
        ended = self.summary is not None and self.summary.get("rounds") == done
        if ended and self.summary is not None and "stopped" in self.summary:
            return "stopped", f"It {self.summary['stopped']}, and can go on: {self._go_on(folder)}"
        if ended and (folder.path / "report.html").is_file():
            return "finished", f"All {rounds} rounds."
        where = f"after round {done} of {rounds}" if done else "before its first round ended"
        return "interrupted", f"It stopped or was killed {where}, and can go on: {self._go_on(folder)}"

    def quality(self) -> tuple[str, str]:
        """Return what tells how good the model is, and how good it is: on test data, or else as clients say."""
        if not self.lines:
            return "quality", "–"
        measure, last = measure_of(self.lines), self.rounds[-1]
        value = last[measure] if measure in last else last["metrics"][measure]
        if value is not None:
            return f"test {measure}", f"{value:.1f} %" if measure == "accuracy" else f"{value:.4g}"
        told = told_last(self.rounds)
        return ("accuracy as clients say", told) if told is not None else ("test loss", "–")

    def spent(self) -> list[dict[str, Any]]:
        """Return ε of every group after the last round, by the plan's accountant, beside what this run may spend."""
        last = self.rounds[-1]["epsilon_spent"] if self.rounds else {}
        return [
            {
                "group": row.group.name,
                "clients": row.group.clients,
                "budget": row.group.budget.epsilon if self.plan.is_private else None,
                "epsilon": last.get(row.group.name),
            }
            for row in self.plan.groups
        ]

    def row(self, folder: RunFolder) -> dict[str, Any]:
        """Return a line of the table of runs."""
        state, said = self.state(folder)
        label, value = self.quality()
        return {
            "path": self.path,
            "state": state,
            "said": said,
            "method": self.plan.title,
            "data": " · ".join(filter(None, (self.about.dataset, self.about.model))),
            "seed": self.about.seed,
            "done": len(self.rounds),
            "rounds": self.plan.rounds,
            "quality": value,
            "measure": label,
            "spent": self.spent(),
            "note": self.about.note,
            "remarks": remarks(self.plan),
        }

    def _go_on(self, folder: RunFolder) -> str:
        is_shell = CONFIG in self.about.files  # into which somebody may copy it
        return self.about.go_on.format(folder=shlex.quote(str(folder.path)) if is_shell else folder.path)


def find_runs(place: Place) -> tuple[list[str], bool]:
    """Return paths of runs below the folder, and whether that is all of them. No link is followed."""
    found, root = [], place.folder.resolve()
    for seen, (folder, inner, files) in enumerate(os.walk(root), 1):
        inner[:] = sorted(name for name in inner if name != PRIVATE and not name.startswith("."))
        if is_run(files):
            inner.clear()
            found.append(Path(folder).relative_to(root).as_posix())
        if seen == MOST_FOLDERS:
            return found, False
    return found, True


def is_run(files: list[str]) -> bool:
    """Whether these are files of a run."""
    return "plan.json" in files and (CONFIG in files or RUN in files)


def read_run(place: Place, path: str) -> Run:
    """Read a run.

    Raises:
        InputError: there is none, it is damaged, or one of its files leads elsewhere.
    """
    folder = place.inside(path)
    for name in (*SEEN, ".lock"):
        place.file(f"{path}/{name}")
    try:
        files = RunFolder(folder)
        lines = tuple(files.lines())
        run = Run(path, files.about, files.plan(), tuple(_rounds(lines)), lines, files.last_summary())
        shown = [run.row(files), run.rounds, run.summary]
        json.dumps(shown, allow_nan=False, ensure_ascii=False).encode()  # whether all of it can be shown
    except (InputError, VerificationError) as error:
        raise InputError(str(error)) from None
    except Exception:  # whatever somebody has put into these files must not keep the studio from showing other runs
        raise InputError(f"{folder} is damaged: its rounds or its summary are not what a run writes.") from None
    return run


def damaged_row(path: str, sentence: str) -> dict[str, Any]:
    """Return the line of a run that cannot be read."""
    empty = dict.fromkeys(("method", "data", "quality", "measure"), "–")
    return {
        "path": path,
        "state": "damaged",
        "said": sentence,
        **empty,
        **dict.fromkeys(("seed", "done", "rounds")),
        "spent": [],
        "note": None,
        "remarks": [],
    }


def _rounds(lines: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        content = dict(json.loads(line, parse_constant=_refuse))
        if content["round"] != number:
            raise ValueError(f"round {content['round']} is in line {number}")
        yield content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
