from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from nestegg.configuration.config import load_config
from nestegg.runs import start_run
from nestegg.runs.comparison import variant
from nestegg.studio.app import make_app
from nestegg.training import Callback, RoundReport, State
from tests.runs.test_runs import config

TOKEN, PORT = "the-token", 4321


def client_of(folder: Path, ledger: str | None = None) -> TestClient:
    """A client of the studio as a browser is that has opened the printed link."""
    client = TestClient(make_app(folder, token=TOKEN, port=PORT, ledger=ledger), base_url=f"http://127.0.0.1:{PORT}")
    client.cookies.set(f"nestegg-{PORT}", TOKEN)
    return client


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return client_of(tmp_path)


@contextmanager
def studio(folder: Path, *options: str) -> Iterator[str]:
    """The real studio in a process of its own; gives the link that it prints."""
    command = [sys.executable, "-m", "nestegg", "studio", str(folder), "--no-browser", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield line.split(" at ")[1].strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with studio(tmp_path_factory.mktemp("studio")) as link:
        yield link


class Ender(Callback):
    def on_round(self, state: State, report: RoundReport) -> bool:
        return True


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a method, and another one that was stopped after its first round."""
    folder = tmp_path_factory.mktemp("runs")
    given = load_config(config(folder, key="rounds", line="rounds = 3"))
    (folder / "config.toml").unlink()
    for seed in (0, 1):
        start_run(variant(given, "idp-fedavg", seed), folder / "many" / f"idp-fedavg-{seed}")
    start_run(given, folder / "stopped", callbacks=[Ender()])
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """Copies of the runs of `made`, to be damaged."""
    return shutil.copytree(made, tmp_path / "runs")


def table(client: TestClient) -> dict[str, dict[str, Any]]:
    """What the first event tells of runs, by path."""
    ends = iter([False, True])
    client.app.state.is_ending = lambda: next(ends)  # type: ignore[attr-defined]
    (event,) = client.get("/runs/events").text.strip().split("\n\n")
    found = json.loads(event.removeprefix("data: "))
    assert found["all"]
    return {run["path"]: run for run in found["runs"]}


def refusal(client: TestClient, path: str, **query: str) -> str:
    """The sentence with which a request is refused."""
    answer = client.get(path, params=query)
    assert answer.status_code == 422
    return str(answer.json()["wrong"][""])
