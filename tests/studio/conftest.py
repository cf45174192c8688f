from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from nestegg.studio.app import make_app

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
