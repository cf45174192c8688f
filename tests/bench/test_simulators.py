"""Environments of simulators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nestegg.bench.simulators import Mode, Simulator, python_of
from nestegg.errors import InputError


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
