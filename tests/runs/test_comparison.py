"""Comparisons: the same to the bit for any number of processes and after any interruption, and what they write."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from nestegg.configuration.config import load_config
from nestegg.errors import InputError, StoppedError
from nestegg.planning import COMPARED
from nestegg.report.charts import comparison_chart
from nestegg.runs import start_run
from nestegg.runs.comparison import Comparison, variant
from nestegg.training import RoundReport
from tests.browser import visit
from tests.callbacks import EachRound
from tests.conftest import Run
from tests.examples import soak
from tests.runs.test_runs import config

METHODS = "fedavg,exact,idp-fedavg"
RESULTS = ("rounds.jsonl", "model.safetensors", "plan.json")
FILES = {f"comparison{end}" for end in (".html", ".csv", "-summary.csv", ".json", ".png", ".svg")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three methods with two seeds, in one go and one process."""
    home = tmp_path_factory.mktemp("whole")
    comparison = Comparison(load_config(config(home)), METHODS.split(","), 2, home / "c")
    comparison.run(jobs=1)
    return home / "c"


def same_results(one: Path, two: Path) -> bool:
    """Whether all runs have the same rounds and models, to the bit."""
    names = [f"{name}-{seed}/{file}" for name in METHODS.split(",") for seed in (0, 1) for file in RESULTS]
    return all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


@pytest.mark.slow
def test_the_command_names_the_files_it_wrote(run: Run, tmp_path: Path, whole: Path) -> None:
    arguments = (config(tmp_path), "--methods", METHODS, "--seeds", 2, "--out", tmp_path / "c")
    result = run("compare", *arguments, "--jobs", 2)
    assert result.code == 0
    for words in ("fedavg", "idp-fedavg", "gap to FedAvg", "± std", *FILES):
        assert words in result.out
    assert {path.name for path in (tmp_path / "c").iterdir() if path.is_file()} == FILES
    assert re.findall(r"^(\d) of 6: ", result.err, re.MULTILINE) == list("123456")
    assert same_results(tmp_path / "c", whole)  # two processes change no bit
    again = run("compare", *arguments)
    assert (again.code, again.out) == (2, "")
    assert "exists; give another folder, or go on with it by --resume." in again.err


def test_tables_agree_with_the_runs(run: Run, tmp_path: Path, whole: Path) -> None:
    result = run("compare", config(tmp_path), "--methods", METHODS, "--seeds", 2, "--out", whole, "--resume", "--json")
    finals = json.loads(result.out)
    assert all(b"not for release" in (whole / name).read_bytes() for name in FILES - {"comparison.png"})
    with (whole / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 6
    for row in rows:
        lines = (whole / f"{row['method']}-{row['seed']}" / "rounds.jsonl").read_text().splitlines()
        assert float(row["accuracy"]) == json.loads(lines[int(row["round"]) - 1])["accuracy"]
    last = {(row["method"], int(row["seed"])): float(row["accuracy"]) for row in rows if row["round"] == "6"}
    curves = json.loads((whole / "comparison.json").read_text())
    with (whole / "comparison-summary.csv").open() as file:
        for row in csv.DictReader(file):
            values = [last[row["method"], seed] for seed in (0, 1)]
            assert finals[row["method"]] == values == [curve[-1] for curve in curves[row["method"]]]
            assert float(row["mean"]) == pytest.approx(np.mean(values), abs=5e-4)
            assert float(row["standard_deviation"]) == pytest.approx(np.std(values, ddof=1), abs=5e-4)


def test_a_comparison_goes_on_with_what_is_missing(tmp_path: Path, whole: Path) -> None:
    settings = load_config(config(tmp_path))
    parts = Comparison(settings, ["fedavg"], 2, tmp_path / "c")
    parts.run(jobs=1)  # two runs are complete, ...
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "c").rglob("*") if path.is_file()}

    def stop(report: RoundReport) -> None:
        if report.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        start_run(
            variant(settings, "exact", 1), tmp_path / "c" / "exact-1", callbacks=[EachRound(stop)]
        )  # ... and one stopped half-way
    seen: list[tuple[str, int]] = []
    Comparison(settings, METHODS.split(","), 2, tmp_path / "c").run(1, lambda name, seed, _: seen.append((name, seed)))
    assert len(seen) == 6
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert same_results(tmp_path / "c", whole)


def test_runs_of_another_configuration_are_not_mixed_in(run: Run, tmp_path: Path, whole: Path) -> None:
    other = config(tmp_path, key="local_epochs", line="local_epochs = 2")
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    result = run("compare", other, "--methods", "exact", "--out", whole, "--resume")
    assert (result.code, result.out) == (2, "")
    assert "exact-0 is a run of another configuration or plan; give another folder." in result.err
    (tmp_path / "empty" / "exact-0").mkdir(parents=True)
    with pytest.raises(InputError, match="is not a run"):
        Comparison(load_config(other), ["exact"], 1, tmp_path / "empty")
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [soak(1, "1"), 2])
def test_an_interruption_says_how_to_go_on(tmp_path: Path, whole: Path, jobs: int) -> None:
    arguments = ["compare", str(config(tmp_path)), "--methods", METHODS, "--seeds", "2", "--out", str(tmp_path / "c")]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, as by nohup, children ignore it too
    with subprocess.Popen(
        [sys.executable, "-m", "nestegg", *arguments, "--jobs", str(jobs)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "300"},
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        children = psutil.Process(process.pid).children()
        os.killpg(process.pid, signal.SIGINT)
        said += process.stderr.readlines()
        assert process.wait() == 3, "".join(said)
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert "What is done of the comparison is kept; the same command with --resume goes on." in said[-1]
    assert "Traceback" not in "".join(said)
    Comparison(load_config(tmp_path / "config.toml"), METHODS.split(","), 2, tmp_path / "c").run(jobs=1)
    assert same_results(tmp_path / "c", whole)


def test_the_page_has_a_table_and_bands(run: Run, tmp_path: Path, whole: Path) -> None:
    run("compare", config(tmp_path), "--methods", METHODS, "--seeds", 2, "--out", whole, "--resume", "--jobs", 1)
    text = (whole / "comparison.html").read_text()
    ideas = [f"<b>{method}</b>: {escape(COMPARED[method].idea)}" for method in METHODS.split(",")]
    for words in ("not for release", "gap to FedAvg", "± std", "Seeds 0 to 1", "Bands reach from the lowest", *ideas):
        assert words in text
    assert "not for release" in (whole / "comparison.svg").read_text()


def test_the_chart_is_drawn(run: Run, tmp_path: Path, whole: Path, chromium: Any) -> None:
    run("compare", config(tmp_path), "--methods", METHODS, "--seeds", 2, "--out", whole, "--resume", "--jobs", 1)
    with visit(chromium, whole / "comparison.html") as seen:
        seen.page.wait_for_selector("[data-drawn]")
        assert seen.console == []
        assert seen.page.locator("[data-drawn=interactive]").count() == 1
        main = seen.page.locator("main").inner_html()
    assert "NaN" not in main
    assert [main.count(f'class="mark-{mark} role-mark') > 0 for mark in ("area", "line")] == [True, True]


def test_bands_reach_from_the_lowest_seed_to_the_highest() -> None:
    content = comparison_chart({"exact": np.array([[1.0, 4.0], [3.0, 5.0]])}).to_dict()
    (rows,) = content["datasets"].values() if "datasets" in content else [content["data"]["values"]]
    assert [(row["low"], row["accuracy"], row["high"]) for row in rows] == [(1.0, 2.0, 3.0), (4.0, 4.5, 5.0)]
    assert content["title"].endswith("?")


def test_comparisons_of_one_seed_and_without_fedavg(run: Run, tmp_path: Path) -> None:
    result = run("compare", config(tmp_path), "--methods", "exact", "--seeds", 1, "--out", tmp_path / "c")
    assert result.code == 0
    assert re.search(r"exact +\d+\.\d\d +– +– +1", result.out)
    assert "Bands" not in (tmp_path / "c" / "comparison.html").read_text()
    refused = run("compare", config(tmp_path), "--jobs", 0, "--out", tmp_path / "d")
    assert "--jobs = 0 must be a whole number" in refused.err
