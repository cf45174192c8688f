"""`nestegg reproduce` as a user meets it: everything at smoke scale, interrupted, killed, and given nonsense."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from nestegg import Schedule, Setting, SpendAsYouGo
from nestegg.configuration.config import Config
from nestegg.experiments import reproduction, runner
from nestegg.experiments.cells import Cell, Store
from nestegg.experiments.definition import load, names
from nestegg.experiments.reproduction import Reproduction
from tests.conftest import Run
from tests.examples import soak

# One of each kind of table or figure, with few cells.
EACH_KIND = [
    *("figure-strict-budgets", "figure-spending", "figure-training-loss", "table-strict-budgets", "figure-noise"),
    "when-to-spend-cnn",
]


@pytest.fixture
def planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules of equal settings are made once in a test: clip norms apart, the 218 cells of smoke have 59."""
    made: dict[object, Schedule] = {}
    schedule = SpendAsYouGo.schedule

    def once(planner: SpendAsYouGo, setting: Setting) -> Schedule:
        key = (planner, setting.groups, setting.rounds, setting.spending_rate, setting.accountants)
        if key not in made:
            made[key] = schedule(planner, setting)
        return made[key]

    monkeypatch.setattr(SpendAsYouGo, "schedule", once)


@pytest.mark.slow
@pytest.mark.usefixtures("planned_once")
@pytest.mark.parametrize("chosen", [pytest.param(EACH_KIND, id="each-kind"), soak(names(), "everything")])
def test_everything_at_smoke_scale_and_again_from_its_cells(
    chosen: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduction, "names", lambda: chosen)
    where = ("--scale", "smoke", "--seeds", 1, "--results", tmp_path / "results", "--out", tmp_path / "out")
    result = run("reproduce", "all", "--jobs", 1, *where)
    assert result.code == 0
    for name in chosen:
        assert load(name).title in result.out
        is_drawn = load(name).shows != "lead"  # which takes two seeds
        for suffix in ("csv", "md", "png", "svg") if is_drawn else ("csv", "md"):
            assert (tmp_path / "out" / f"{name}.{suffix}").stat().st_size > 0
    assert "not run" not in (tmp_path / "out" / "index.html").read_text()
    assert "a test of the program" in result.out
    assert "cells of format 2 (noise on the lattice)" in result.out

    def refuse(config: Config) -> Cell:
        raise AssertionError("nothing is missing")

    monkeypatch.setattr(runner, "measure", refuse)
    again = run("reproduce", "table-strict-budgets", "--jobs", 1, *where)
    assert again.code == 0
    first = again.out[again.out.index(load("table-strict-budgets").title) : again.out.index("Tables, charts")]
    assert first.strip() in result.out


def test_each_kind_is_each_kind() -> None:
    assert {load(name).shows for name in EACH_KIND} == {load(name).shows for name in names()}


def test_every_cell_is_asked_for_once_and_first_seeds_come_first(tmp_path: Path) -> None:
    table = load("table-cifar10")
    later = table.model_copy(update={"seeds": [2, 3]})  # its first seed is the last of the other
    wanted = Reproduction({"table": table, "later": later}, "smoke", Store(tmp_path))
    paths = [wanted.store.path(config) for config in wanted.configs()]
    assert len(paths) == len(set(paths))
    assert {path.name.split("-")[1][0] for path in paths} == {"0", "1", "2", "3"}
    seeds = [config.training.seed for config in wanted.configs()]
    assert seeds == sorted(seeds, key=[0, 2, 1, 3].index)
    assert wanted.counts() == {"table": (0, 33), "later": (0, 22)}


@pytest.mark.parametrize(("count", "seeds"), [(None, [7, 3]), (1, [7]), (2, [7, 3]), (4, [7, 3, 4, 5])])
def test_more_seeds_than_an_experiment_has_follow_its_last(count: int | None, seeds: list[int]) -> None:
    experiment = load("table-cifar10").model_copy(update={"seeds": [7, 3]})
    assert experiment.with_seeds(count).seeds == seeds


def test_redraw_trains_nothing_and_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    where = ("--scale", "smoke", "--results", tmp_path / "results", "--out", tmp_path / "out")
    result = run("reproduce", "table-cifar10", "--redraw", *where)
    assert result.code == 0
    assert "not run" in result.out
    assert not (tmp_path / "results").exists()


def reproducing(folder: Path, jobs: int) -> subprocess.Popen[str]:
    """A real process at work on cells, with a line on stderr for each."""
    where = ["--scale", "smoke", "--results", str(folder / "results"), "--out", str(folder / "out")]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, as by nohup, children ignore it too
    return subprocess.Popen(
        [sys.executable, "-m", "nestegg", "reproduce", "table-clients", "--jobs", str(jobs), *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        start_new_session=True,
    )


def lines_until(process: subprocess.Popen[str], start: str) -> list[str]:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(start):
            break
    return said


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [soak(1, "1"), 2])
def test_a_killed_run_goes_on_with_the_next_cell(run: Run, tmp_path: Path, jobs: int) -> None:
    with reproducing(tmp_path, jobs) as process:
        lines_until(process, "2 of")
        children = psutil.Process(process.pid).children()
        process.kill()
    assert not psutil.wait_procs(children, timeout=60)[1]  # nobody works on for nobody
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "results" / "cells").glob("*.json")}
    assert len(done) >= 2
    where = ("--scale", "smoke", "--results", tmp_path / "results", "--out", tmp_path / "out")
    result = run("reproduce", "table-clients", "--jobs", 1, *where)
    assert result.code == 0
    assert f"{len(done)} of 24 cells are there." in result.err
    assert all(path.stat().st_mtime_ns == written for path, written in done.items())


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [soak(1, "1"), 2])
def test_an_interruption_keeps_what_is_done(tmp_path: Path, jobs: int) -> None:
    with reproducing(tmp_path, jobs) as process:
        said = lines_until(process, "2 of")
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        said += process.stderr.readlines()
        assert process.wait() == 3, "".join(said)
    assert "Finished cells are kept; the same command goes on." in said[-1]
    assert "Traceback" not in "".join(said)
    assert len(list((tmp_path / "results" / "cells").glob("*.json"))) >= 2
    assert not list((tmp_path / "results" / "cells").glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("table-acuracy",), "table or figure = 'table-acuracy' must be one of"),
        (("table-acuracy",), "Did you mean 'table-accuracy'?"),
        ((), "name a table or figure"),
        (("table-accuracy", "--scale", "small"), "--scale = 'small' must be one of full, day, cpu, smoke."),
        (("table-accuracy", "--only", "minst"), "Did you mean 'mnist'?"),
        (("all", "--only", "adlt"), "Did you mean 'adult'?"),
        (("table-accuracy", "--seeds", "0"), "--seeds = 0 must be a whole number"),
        (("table-accuracy", "--jobs", "0"), "--jobs = 0 must be a whole number"),
        (("missing.toml",), "missing.toml cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run("reproduce", *arguments, "--results", tmp_path / "results", "--out", tmp_path / "out")
    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "results").exists()


def test_missing_data_is_named_before_anything_is_trained(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("NESTEGG_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "nothing"))
    result = run("reproduce", "table-cifar10", "--results", tmp_path / "results", "--out", tmp_path / "out")
    assert result.code == 2
    assert "nestegg data get cifar10" in result.err
    assert "cifar-10-python.tar.gz" in result.err
    assert not (tmp_path / "results").exists()


def test_the_list_counts_what_is_done(run: Run, tmp_path: Path) -> None:
    result = run("reproduce", "--list", "--scale", "smoke", "--results", tmp_path)
    assert result.code == 0
    assert all(name in result.out for name in names())
    assert re.search(r"table-cifar10 .* 0 of 33", result.out)  # three seeds; FedAvg is the same at either clip norm
