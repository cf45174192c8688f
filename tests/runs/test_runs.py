"""Runs: folders that are valid at every moment, resumed bit for bit, and refused kindly."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from logging import getLogger
from pathlib import Path

import pytest
from safetensors.torch import load_file

from nestegg import StoppedError, load_plan
from nestegg.configuration.config import load_config
from nestegg.runs import resume_run, start_run
from nestegg.training import RoundReport
from tests.callbacks import EachRound
from tests.conftest import Run
from tests.examples import slow

CONFIG = """
[federation]
clients = 12
dirichlet = 0.5
[training]
rounds = 6
local_epochs = 1
reproducible = true
[privacy]
method = "METHOD"
[[privacy.groups]]
name = "strict"
share = 0.5
epsilon = 10.0
saving_rate = 0.5
[[privacy.groups]]
name = "open"
share = 0.5
epsilon = 30.0
"""
OTHERS = ("fedavg", "dp-fedavg", "idp-fedavg", "adaptive-clipping", "shaped")


def config(folder: Path, method: str = "spend-as-you-go", key: str = "", line: str = "") -> Path:
    """A small configuration; the line that sets `key` may be exchanged for others."""
    text = CONFIG.replace("METHOD", method)
    path = folder / "config.toml"
    path.write_text(re.sub(rf"^{key} = .*$", line, text, flags=re.MULTILINE) if key else text)
    return path


@pytest.mark.parametrize("method", ["spend-as-you-go", *slow(*OTHERS)])
def test_a_run_writes_everything(method: str, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "run"
    summary = start_run(load_config(config(tmp_path, method)), folder)
    names = {path.name for path in folder.iterdir()}
    assert {"config.toml", "plan.json", "rounds.jsonl", "summary.json", "model.safetensors", "report.html"} <= names
    assert "private" in names
    assert not [name for name in names if name.endswith((".png", ".svg"))]
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for key in (
        "accuracy",
        "loss",
        "simulation_only_cohort_size",
        "epsilon_spent",
        "clip_norm",
        "noise_std",
    ):
        assert key in lines[0]
    written = json.loads((folder / "summary.json").read_text())
    assert written == summary
    keys = "method composition accountant dataset model seed rounds final_accuracy groups reproducible"
    assert set(keys.split()) <= set(written)
    assert written["final_accuracy"] == lines[-1]["accuracy"]
    assert "not for release" in written["note"]
    assert "not for release" in (folder / "report.html").read_text()
    assert load_plan(folder / "plan.json").method == method
    again = start_run(load_config(folder / "config.toml"), tmp_path / "again")  # the written configuration is complete
    assert again["final_accuracy"] == written["final_accuracy"]
    assert [group["name"] for group in written["groups"]] == ["strict", "open"]


@pytest.mark.slow
def test_resuming_gives_the_same_model_bit_for_bit(tmp_path: Path) -> None:
    for method in ("spend-as-you-go", "adaptive-clipping"):
        whole, broken = tmp_path / f"{method}-whole", tmp_path / f"{method}-broken"
        settings = load_config(config(tmp_path, method))
        start_run(settings, whole)

        def stop(report: RoundReport) -> None:
            if report.round == 3:
                raise ZeroDivisionError("on purpose")

        with pytest.raises(StoppedError, match="The callback EachRound raised ZeroDivisionError: on purpose"):
            start_run(settings, broken, callbacks=[EachRound(stop)])
        # The line of a round that has a checkpoint may be missing or torn; it is in the checkpoint too.
        lines = (broken / "rounds.jsonl").read_text().splitlines()
        (broken / "rounds.jsonl").write_text("\n".join([*lines[:2], lines[2][:20]]))
        resume_run(broken)
        assert (whole / "model.safetensors").read_bytes() == (broken / "model.safetensors").read_bytes()
        assert len((broken / "rounds.jsonl").read_text().splitlines()) == 6


@pytest.mark.slow
def test_kill_9_at_random_moments_leaves_a_folder_that_can_go_on(tmp_path: Path) -> None:
    settings = config(tmp_path)
    start_run(load_config(settings), tmp_path / "whole")
    generator = random.Random(0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder = tmp_path / "killed"
    kills = 0
    for _ in range(5):
        arguments = ["--resume", str(folder)] if folder.exists() else [str(settings), "--out", str(folder)]
        lines = _lines(folder) + generator.randint(0, 2)
        with subprocess.Popen(
            [sys.executable, "-m", "nestegg", "run", *arguments], env=environment, stderr=subprocess.PIPE
        ) as child:
            while child.poll() is None and not (folder.exists() and _lines(folder) >= lines):
                time.sleep(generator.uniform(0.0, 0.002))
            child.send_signal(signal.SIGKILL)
            _, errors = child.communicate()
        kills += child.returncode == -9
        assert child.returncode in (0, -9), errors.decode()
        load_plan(folder / "plan.json")
        load_config(folder / "config.toml")
    resume_run(folder)
    assert kills
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def _lines(folder: Path) -> int:
    file = folder / "rounds.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_another_seed_is_another_model_and_the_model_can_be_loaded(tmp_path: Path) -> None:
    first = start_run(load_config(config(tmp_path)), tmp_path / "a")
    second = start_run(load_config(config(tmp_path, key="rounds", line="rounds = 6\nseed = 1")), tmp_path / "b")
    assert first["seed"] == 0 != second["seed"]
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert a.keys() == b.keys() == {"1.weight", "1.bias", "3.weight", "3.bias"}
    assert not a["1.weight"].equal(b["1.weight"])


def test_run_and_resume_from_the_command_line(run: Run, tmp_path: Path) -> None:
    done = run("run", config(tmp_path), "--out", tmp_path / "r", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["rounds"] == 6
    again = run("run", "--resume", tmp_path / "r")
    assert again.code == 0
    assert "test accuracy after 6 rounds" in again.out
    assert "not for release" in again.out


def test_charts_are_files_only_where_asked_for(run: Run, tmp_path: Path) -> None:
    folder, drawn = tmp_path / "r", {"accuracy", "spending", "sampling", "noise", "simulation-only-labels"}
    assert run("run", config(tmp_path), "--out", folder).code == 0
    page, model = (folder / "report.html").read_text(), (folder / "model.safetensors").read_bytes()
    assert page.count("<figure ") == page[: page.index("</main>")].count("<svg ") == len(drawn)
    assert not [*folder.glob("*.png"), *folder.glob("*.svg")]
    assert run("run", "--resume", folder, "--charts").code == 0  # of a run that is complete, too
    for kind in ("png", "svg"):
        assert {path.stem for path in folder.glob(f"*.{kind}")} == drawn
    assert (folder / "model.safetensors").read_bytes() == model
    assert run("run", config(tmp_path, "fedavg"), "--out", tmp_path / "f", "--charts").code == 0
    assert (tmp_path / "f" / "accuracy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clients", "clients = 5000", "federation.clients = 5000 needs 10000 samples"),
        ("clients", 'clients = 12\ndataset = "mnits"', "Did you mean 'mnist'?"),
        ("local_epochs", "local_epochs = 0", "local_epochs = 0"),
        ("local_epochs", "learning_rate = -1.0", "learning_rate = -1.0"),
        ("local_epochs", 'device = "abacus"', "device = 'abacus' cannot be used here"),
        ("local_epochs", 'engine = "warp"', "engine = 'warp'"),
        ("local_epochs", 'schedule = "sine"', "schedule = 'sine'"),
        ("method", 'method = "fedavg"\nshape = "linear"', "privacy.shape belongs to the method 'shaped'"),
        ("method", "clip_norm = 1e300", "clip_norm = 1e+300 must be at most"),
        ("method", 'method = "adaptive-clipping"\nadaptive = { bit_noise = 0.01 }', "bit_noise = 0.01 is too little"),
        ("rounds", f"rounds = 6\nseed = {2**64}", "training.seed = 18446744073709551616"),
        ("method", "colluders = 12", "colluders = 12 must be fewer"),
        ("method", 'clip_unit = "metre"', "clip_unit = 'metre'"),
        ("method", 'budgets = "large"', "budgets = 'large'"),
    ],
)
def test_bad_runs_are_refused_and_write_nothing(old: str, new: str, message: str, run: Run, tmp_path: Path) -> None:
    result = run("run", config(tmp_path, key=old, line=new), "--out", tmp_path / "r")
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"config.toml"}


@pytest.mark.parametrize("methods", ["", "fedavg,fedavg", "fedavg,exakt"])
def test_comparisons_that_make_no_sense(methods: str, run: Run, tmp_path: Path) -> None:
    result = run("compare", config(tmp_path), "--methods", methods, "--out", tmp_path / "c")
    assert result.code == 2
    assert "methods = " in result.err
    assert not (tmp_path / "c").exists()


def test_folders_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run("run", config(tmp_path), "--out", folder)
    assert "exists" in run("run", config(tmp_path), "--out", folder).err
    assert "is not a run" in run("run", "--resume", tmp_path / "nothing").err
    (tmp_path / "study" / "monday").mkdir(parents=True)
    file = tmp_path / "study" / "config.toml"
    file.write_text(config(tmp_path).read_text())
    assert "is not a run: it has no plan.json." in run("run", "--resume", tmp_path / "study").err
    (tmp_path / "study" / "monday" / "plan.json").touch()
    assert "study/monday'?" in run("run", "--resume", tmp_path / "study").err
    assert "is a file; give the folder of a run." in run("run", "--resume", file).err
    assert "either CONFIG.toml or --resume" in run("run").err
    other = tmp_path / "other"
    run("run", config(tmp_path, "idp-fedavg"), "--out", other)
    (folder / "checkpoint.safetensors").write_bytes((other / "checkpoint.safetensors").read_bytes())
    assert "checkpoint of another configuration: restore the one" in run("run", "--resume", folder).err
    changed = (other / "config.toml").read_text().replace("local_epochs = 1", "local_epochs = 2")
    (other / "config.toml").write_text(changed)
    assert "checkpoint of another configuration" in run("run", "--resume", other).err
    (folder / "checkpoint.safetensors").write_bytes(b"nonsense")
    assert run("run", "--resume", folder).code == 2


def test_a_full_disk_stops_the_run_with_exit_code_3(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "r"
    original = os.fsync
    calls = 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if 8 <= calls < 100:
            raise OSError(28, "No space left on device")
        original(handle)

    monkeypatch.setattr("os.fsync", full)
    result = run("run", config(tmp_path), "--out", folder)
    assert result.code == 3
    assert "No space left on device" in result.err
    assert f"nestegg run --resume {folder}" in result.err.replace("\n", "")
    calls = 100
    assert run("run", "--resume", folder).code == 0


def test_a_model_that_is_not_finite_stops_the_run_and_is_not_paid_for_again(run: Run, tmp_path: Path) -> None:
    text = CONFIG.replace("METHOD", "idp-fedavg").replace("rounds = 6", "rounds = 6\nlearning_rate = 1e28")
    file, folder = tmp_path / "config.toml", tmp_path / "run"
    file.write_text(text)
    stopped = run("run", file, "--out", folder)
    assert stopped.code == 3
    said = " ".join(stopped.err.split())
    done = int(re.findall(r"The model is not finite after round (\d), which is released and paid", said)[0])
    assert "A new run with a smaller learning_rate or clip_norm is needed." in said
    assert done < 6
    assert not (folder / "summary.json").exists()
    again = run("run", "--resume", folder)
    assert again.code == 3
    assert "not finite" in again.err
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == done  # nothing more was charged or trained


def test_what_is_odd_about_a_plan_is_said_before_the_first_round_and_in_the_summary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        CONFIG.replace("METHOD", "spend-as-you-go")
        .replace("saving_rate = 0.5\n", "")
        .replace("rounds = 6", "rounds = 2")
    )
    (tmp_path / "config.toml").write_text(text)
    log = getLogger("nestegg")
    summary = start_run(
        load_config(tmp_path / "config.toml"),
        tmp_path / "run",
        callbacks=[EachRound(lambda report: log.warning("a round"))],
    )
    said = caplog.messages
    assert said[0].startswith("No group saves")
    assert said[-2:] == ["a round", "a round"]
    assert summary["remarks"] == [said[0]]
    assert "No group saves" in (tmp_path / "run" / "report.html").read_text()
