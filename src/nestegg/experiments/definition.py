"""An experiment of the paper as data: a small file that says what is run, with the paper's number beside each cell."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from nestegg.checks import one_of, whole
from nestegg.errors import InputError
from nestegg.experiments.settings import Hyperparameters, Number
from nestegg.planning import COMPARED
from nestegg.schema import Section, read, read_toml

FOLDER = Path(__file__).parent / "paper"
REPORTED_SEEDS = (0, 1, 2)
TUNING_SEED, _TUNING = 100, "-tuning"


class Column(Section):
    """A method, with the hyper-parameters that are its own, and the columns that it wants to beat.

    Of those `beside` it there is an interval, and no test.
    """

    name: str
    label: str
    setting: dict[str, Any]
    rivals: list[str] = Field(default_factory=list)
    beside: list[str] = Field(default_factory=list)


class Row(Section):
    """What the methods are compared on: hyper-parameters, and the accuracies that the paper states.

    `chosen` is what else differs where the row appears again at the chosen clip norm; `best` is every column's own best
    clip norm, where the experiment says how it is chosen.
    """

    name: str
    label: str
    setting: dict[str, Any] = Field(default_factory=dict)
    chosen: dict[str, Any] = Field(default_factory=dict)
    best: dict[str, float] = Field(default_factory=dict)
    paper: dict[str, float] = Field(default_factory=dict)


class Experiment(Section):
    """A table or figure of the paper.

    Attributes:
        title: what it is called here.
        source: which of the paper's tables and figures it is.
        question: what it answers; the title of its chart.
        claim: what the paper says about it.
        shows: accuracy as numbers or curves, training loss as curves; or privacy spent or noise, which plans alone say.
        assumed: what the paper leaves open, and what is taken instead.
        scale: at which alone it says anything, and is run where cpu is asked for; by default any.
        seeds: the reported ones, or for tuning others.
        chosen_clip: whether rows appear a second time, at the clip norm of `chosen.toml`.
        tuning: multiples of a row's clip norm among which every column's best is chosen, on validation data.
        holm: whether tests against one rival are corrected for their number.
        family: rows among which these are some, for that correction; 0 if they are all.
        setting: hyper-parameters of all cells.
        columns: methods, each with what is particular to it.
        rows: each with what is particular to it.
    """

    title: str
    source: str
    question: str
    claim: str = ""
    shows: Literal["accuracy", "lead", "curves", "training-loss", "spending", "noise"]
    assumed: list[str] = Field(default_factory=list)
    scale: Literal["day"] | None = None
    seeds: list[int] = Field(default_factory=lambda: list(REPORTED_SEEDS), min_length=1)
    chosen_clip: bool = True
    tuning: list[Number] = Field(default_factory=list)
    holm: bool = False
    family: int = 0
    setting: dict[str, Any]
    columns: list[Column] = Field(min_length=1)
    rows: list[Row] = Field(min_length=1)

    @property
    def measure(self) -> str:
        """What of a cell is compared: accuracy or training_loss."""
        return "training_loss" if self.shows == "training-loss" else "accuracy"

    @property
    def trains(self) -> bool:
        """Whether there is anything to train for it."""
        return self.shows not in ("spending", "noise")

    def scale_for(self, asked: str) -> str:
        """Return the scale at which it is run where one is asked for."""
        return self.scale if self.scale is not None and asked == "cpu" else asked

    def cell(self, row: Row, column: Column, *, plain: bool = False) -> Hyperparameters:
        """The complete setting where a row and a column meet; the column has the last word, but for its best clip norm.

        Plain is without that.
        """
        best = {"clip_norm": row.best[column.name]} if column.name in row.best and not plain else {}
        content = {**self.setting, **row.setting, **column.setting, **best}
        where = f"{self.title}, {row.label}, {column.label}"
        setting = read(Hyperparameters, content, where)
        setting.check(where)
        return setting

    def dataset(self, row: Row) -> str:
        """Return what a row is about: its first column's dataset."""
        return self.cell(row, self.columns[0]).dataset

    def shown_rows(self) -> list[Row]:
        """The rows, and after each the same at the clip norm that was chosen for its dataset, where it is another."""
        shown = []
        for row in self.rows:
            setting = self.cell(row, self.columns[0])
            norms = {"": setting.clip_norm}
            better = chosen_clip_norms().get(setting.dataset, setting.clip_norm)
            if self.chosen_clip and setting.clip_unit == "gradient" and better != setting.clip_norm:
                norms["-chosen"] = better
            for suffix, norm in norms.items():
                how = f", c = {norm:g} {'(chosen)' if suffix else '(stated)'}" if len(norms) > 1 else ""
                changes = {
                    "name": row.name + suffix,
                    "label": row.label + how,
                    "setting": {**row.setting, **(row.chosen if suffix else {}), "clip_norm": norm},
                }
                shown.append(row.model_copy(update=changes))
        return shown

    def only(self, name: str | None) -> Experiment | None:
        """The rows of one dataset, or the one row of that name; none if there is none."""
        if name is None:
            return self
        rows = [row for row in self.rows if name in (row.name, self.dataset(row))]
        return self.model_copy(update={"rows": rows, "family": self.family or len(self.rows)}) if rows else None

    def with_seeds(self, count: int | None) -> Experiment:
        """The same with so many seeds: the first of its own, and beyond them those that follow; all by default."""
        if count is None:
            return self
        whole("--seeds", count, 1, 1000)
        last = self.seeds[-1]
        return self.model_copy(update={"seeds": [*self.seeds, *range(last + 1, last + count)][:count]})

    def tuned(self) -> Experiment:
        """How the best clip norms are chosen: on validation data, with a seed that is not reported."""
        rows = [
            Row(
                name=f"{row.name}-{column.name}",
                label=f"{row.label}, {column.label}",
                setting={**row.setting, **column.setting, "tested_on": "validation"},
                best={_multiple(one): one * self.cell(row, column, plain=True).clip_norm for one in self.tuning},
            )
            for row in self.rows
            for column in self.columns
            if _has_best(column)
        ]
        columns = [Column(name=_multiple(one), label=f"{one:g} × c", setting={}) for one in self.tuning]
        what = {
            "title": f"{self.title}: choosing clip norms",
            "holm": False,
            "question": "Which clip norm suits which method?",
            "shows": "accuracy",
            "seeds": [TUNING_SEED],
            "rows": rows,
        }
        return self.model_copy(update={**what, "columns": columns})

    def handles(self) -> list[str]:
        """Names by which `only` knows rows."""
        return list(dict.fromkeys(n for r in self.rows for n in (self.dataset(r), r.name)))


class Chosen(Section):
    """Clip norms that suit a dataset better than the paper's; `chosen.toml` says how they were chosen."""

    clip_norm: dict[str, float]


@cache
def chosen_clip_norms() -> dict[str, float]:
    """By dataset; see `chosen.toml`."""
    return read_toml(Chosen, FOLDER / "chosen.toml").clip_norm


def names() -> list[str]:
    """Of all experiments, in the paper's order: files are numbered."""
    return list(_files())


def tunings() -> list[str]:
    """Of what chooses the clip norms of experiments that say how."""
    return [f"{name}{_TUNING}" for name in names() if load(name).tuning]


def name_of(path: Path) -> str:
    """The name by which users call the experiment in a file: without the number of ours, without folder and suffix."""
    return _numberless(path) if path in _files().values() else path.stem


def load(name: str) -> Experiment:
    """One experiment by name, or any file of one; a mistake in it is one sentence."""
    if not name.endswith(".toml"):
        return _ours(name)
    experiment = read_toml(Experiment, Path(name))
    columns = [column.name for column in experiment.columns]
    shown = [row.name for row in experiment.shown_rows()]
    for what, values in (("columns", columns), ("rows", shown), ("seeds", experiment.seeds)):
        if len(set(values)) < len(values):
            raise InputError(f"{name}: {what} = {', '.join(map(str, values))} must not name anything twice.")
    for column in experiment.columns:
        for rival in (*column.rivals, *column.beside):
            one_of(f"{name}: column {column.name!r}: rivals", rival, columns)
    for row in experiment.shown_rows():
        for number in (*row.paper, *row.best):
            one_of(f"{name}: number of row {row.name!r}", number, columns)
        for column in experiment.columns:
            experiment.cell(row, column)
    return experiment


def _has_best(column: Column) -> bool:
    """Whether a clip norm is chosen for a column: it clips, and has none of its own."""
    return COMPARED[column.setting.get("method", "optimal")].is_private and "clip_norm" not in column.setting


def _multiple(times: float) -> str:
    return f"x{times:g}"


@cache
def _ours(name: str) -> Experiment:
    if name not in names() and name in tunings():
        return load(name.removesuffix(_TUNING)).tuned()
    one_of("table or figure", name, names())
    return load(str(_files()[name]))


@cache
def _files() -> dict[str, Path]:
    return {_numberless(path): path for path in sorted(FOLDER.glob("[0-9]*.toml"))}


def _numberless(path: Path) -> str:
    return path.stem.split("-", 1)[1]
