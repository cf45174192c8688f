"""The benchmark: all simulators do the same rounds, whoever does not is named, and what is measured is saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from torch import nn
from typer.testing import CliRunner

from nestegg.bench import growth, kernels, profile, simulators
from nestegg.bench.contest import contest
from nestegg.bench.machine import processor
from nestegg.bench.peers.work import Work
from nestegg.bench.process import Process
from nestegg.bench.scores import save_scores, score_row
from nestegg.bench.simulators import Mode, Simulator, python_of
from nestegg.bench.works import RECIPES, Recipe, load_federation, random_clients, write_work
from nestegg.cli.program import app
from nestegg.errors import InputError
from nestegg.training import LocalTraining

from .federations import DENSE

TINY = Recipe(
    "seven small clients",
    "mlp",
    LocalTraining(2, 4, 0.1, schedule="constant"),
    0.7,
    lambda _: random_clients(7, 3, 9, (6,), 3),
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "tiny", TINY)


def test_what_is_written_is_what_the_federation_does(tmp_path: Path) -> None:
    write_work(TINY, tmp_path, 3)
    work, world = Work.load(tmp_path), load_federation(tmp_path, workers=1)
    for t in (1, 2, 3):
        cohort = work.cohort(t)
        assert [client for client, _ in cohort] == world.cohort(t)
        for client, batches in cohort:
            own = np.arange(work.starts[client], work.starts[client + 1])
            assert np.array_equal(np.sort(np.concatenate(batches)), np.sort(np.tile(own, 2)))
            assert max(map(len, batches)) <= 4
    assert work.facts["noise_std"] == pytest.approx(world.plan.clip_norm * world.plan.round_noise_multiplier[0])
    assert work.facts["expected"] == pytest.approx(0.7 * 7)


@pytest.mark.slow
def test_simulators_that_fail_differ_or_cannot_be_installed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for script in simulators.SCRIPTS.glob("*.py"):
        (scripts / script.name).write_text(script.read_text())
    (scripts / "broken.py").write_text("raise SystemExit('no wheels today')")
    other = (scripts / "run_plain.py").read_text().replace('lr=facts["learning_rate"]', 'lr=2 * facts["learning_rate"]')
    (scripts / "other.py").write_text(other)
    tired = (
        (scripts / "run_plain.py")
        .read_text()
        .replace("        total =", "        assert round_ < 2, 'enough'\n        total =")
    )
    (scripts / "tired.py").write_text(tired)
    monkeypatch.setattr("nestegg.bench.process.SCRIPTS", scripts)
    ours, plain = simulators.simulators(1)[:2]
    rivals = [
        replace(plain, name="broken", script="broken.py"),
        replace(plain, name="other", script="other.py"),
        replace(plain, name="tired", script="tired.py"),
        Simulator("nowhere", "run_plain.py", plain.modes, ("no-such-package==1",), torch=False),
        replace(plain, name="for images", models=("cnn",)),
    ]
    said: list[str] = []
    done = contest("tiny", [ours, plain, *rivals], 2, tmp_path / "cache", None, said.append)
    assert [entry.name for entry in done.entries] == ["nestegg", "plain PyTorch"]
    assert done.missing["broken"] == "broken (1 thread) failed: no wheels today."
    assert "gives another result" in done.missing["other"]
    assert done.missing["tired"] == "tired (1 thread) failed: AssertionError: enough."
    assert (
        "nowhere cannot be installed: No matching distribution found for no-such-package==1" in done.missing["nowhere"]
    )
    assert done.entries[1].difference < 1e-4
    assert all(len(entry.seconds) == 2 and entry.memory > 1e6 for entry in done.entries)
    living = [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    assert not [child for child in living if "run_" in " ".join(child.cmdline())]
    assert done.ratio(done.entries[0]) == 1.0
    assert done.rate["fp32"] > done.operations > 0

    (tmp_path / "out").mkdir()
    save_scores(tmp_path / "out", [done])
    saved = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert saved["works"][0]["missing"].keys() == {"broken", "other", "tired", "nowhere"}
    assert "no wheels today" in (tmp_path / "out" / "bench.md").read_text()
    assert len((tmp_path / "out" / "bench.csv").read_text().splitlines()) == 3
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert score_row(done, done.entries[1])[1].startswith("plain PyTorch 2.")


def test_what_is_timed_is_what_was_checked_plus_noise(tmp_path: Path) -> None:
    write_work(TINY, tmp_path, 1)
    work = Work.load(tmp_path)
    for simulator in simulators.simulators(1)[:2]:
        with Process(simulator, simulator.modes[0], python_of(simulator, tmp_path), tmp_path) as process:
            clean = process.result(1, tmp_path)
            noisy = [process.result(1, tmp_path, noisy=True)]
        noise = (np.stack(noisy) - clean) * work.facts["expected"] / work.facts["noise_std"]
        assert noise.std() == pytest.approx(1.0, rel=0.2)


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        calls.append(command)
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr("nestegg.bench.simulators.subprocess.run", run)
    monkeypatch.setattr("nestegg.bench.simulators.venv.create", lambda folder, **_: None)
    peer = Simulator("Peer, fast", "run_plain.py", (Mode("", ()),), ("peer==1",))
    for _ in range(2):
        assert python_of(peer, tmp_path) == tmp_path / "nestegg-peer" / "bin" / "python"
    assert [command[-1].split("==")[0] for command in calls] == ["torch", "peer"]  # torch first, and alone
    python_of(replace(peer, requirements=("peer==2",)), tmp_path)
    assert len(calls) == 4
    precious = tmp_path / "nestegg-other" / "thesis.tex"
    precious.parent.mkdir()
    precious.touch()
    with pytest.raises(InputError, match="is not ours to overwrite"):
        python_of(replace(peer, name="Other"), tmp_path)
    assert precious.exists()


def test_a_profile_says_where_the_time_goes() -> None:
    found = profile.profile_round("tiny", None)
    assert found.parts.keys() == profile.PARTS.keys()
    assert 0.0 < found.privacy < 1.0
    assert sum(found.parts.values()) - found.parts["of it shuffling"] <= 1.0
    assert all(share >= 0.01 for share in found.operations.values())  # of two runs, so not quite shares


@pytest.mark.slow
def test_growth_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SERIES", {"clients": ("clients", {5: growth._digits_like(5, 2)})})
    monkeypatch.setattr(growth, "ROUNDS", (1, 3))
    points = list(growth.growth(tmp_path))
    assert [(point.varied, point.value) for point in points] == [("clients", 5), ("rounds", 1), ("rounds", 3)]
    assert points[1].seconds < points[2].seconds
    (tmp_path / "out").mkdir()
    growth.save_growth(tmp_path / "out", points)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"growth.csv", "growth.png", "growth.svg"}


def test_kernels_are_timed_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (kernels.Shape((3, 4, 2), 2, 5, 2), kernels.Shape((3, 4, 1), 2, 5, 2, nn.Tanh))
    monkeypatch.setattr(kernels, "SHAPES", shapes)
    result = CliRunner().invoke(app, ["bench", "kernels", "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    table = (tmp_path / "kernels.md").read_text()
    heads, _, relu, tanh, *_ = table.splitlines()
    assert heads.split(" | ")[3:] == ["loop", *DENSE[:-1], f"{DENSE[-1]} |"] if DENSE else ["loop |"]
    assert relu.startswith("| 3-4-2 | 2 × 5 | 2 |")
    assert tanh.startswith("| 3-4-1, tanh | 2 × 5 | 2 |")
    assert relu.count("×") == 1 + len(DENSE)
    assert processor() in table


def test_tables_name_the_processor(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nflags\t: fpu\n")
    assert processor(file) == "AMD EPYC (family 25, model 17)"
    file.write_text("model name\t: Some other: chip\n")
    assert processor(file) == "Some other: chip"
    assert processor(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["walking"], "what to measure = 'walking'"),
        (["--works", "mlp,cook"], "work = 'cook'"),
        (["--peers", "friend"], "peers = 'friend'"),
        (["--rounds", "0"], "rounds = 0"),
        (["--works", ","], "',' names nothing"),
        (["--works", "tiny", "--peers", "none", "--out", "/dev/null/x"], "--out /dev/null/x cannot be made"),
        (["--precisions", "fp8"], "precisions = 'fp8'"),
    ],
)
def test_mistakes_are_named(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(result.exception, InputError)
    assert complaint in str(result.exception)


@pytest.mark.slow
def test_work_without_its_data_is_named_and_the_rest_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTEGG_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ["--peers", "none", "--rounds", "1", "--out", str(tmp_path / "out"), "--data", str(tmp_path)]
    alone = CliRunner().invoke(app, ["bench", "--works", "uneven", *options])
    assert isinstance(alone.exception, InputError)
    result = CliRunner().invoke(app, ["bench", "--works", "uneven,tiny", *options])
    assert result.exit_code == 0
    assert "uneven: " in result.output
    assert "tiny" in (tmp_path / "out" / "bench.csv").read_text()
