"""All simulators do the same rounds, those that do not are named, and what is measured is saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from nestegg.bench import simulators
from nestegg.bench.contest import contest
from nestegg.bench.peers.work import Work
from nestegg.bench.process import Process
from nestegg.bench.scores import save_scores, score_row
from nestegg.bench.simulators import Simulator, python_of
from nestegg.bench.works import write_work
from tests.bench.conftest import TINY


@pytest.mark.slow
@pytest.mark.soak
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
