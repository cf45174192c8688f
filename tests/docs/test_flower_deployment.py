"""Section 7 of the tutorial on Flower: its commands, as they stand there, deploy four nodes that train, and refuse."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL

import pytest

from nestegg.flower.loopback import Loopback, free_port, wait_for_port

from .pages import blocks_of, commands_in, file_of

pytestmark = [pytest.mark.slow, pytest.mark.soak]
PAGE = "tutorials/flower.md"
EPSILONS = (25.0, 25.0, 90.0, 90.0)  # as in the page's trial in one process


class Operator:
    """Types the page's commands in a folder: with free ports, and files where the page has those of its own machines.

    Args:
        folder: to work in.
        stack: ends what was started.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.port = free_port()
        self.environment = {**Loopback(folder / "unused", []).environment, "FLWR_HOME": str(folder / "flwr")}

    def type(self, line: str, places: Mapping[str, str] = {}) -> str:
        """Run a command to its end, and return what it says."""
        command = ["bash", "-c", self.here(line, places)]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def start(self, line: str, log: str, places: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
        """Start a command that goes on."""
        command = ["bash", "-c", f"exec {self.here(line, places)}"]
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=out, stderr=out, start_new_session=True
            )
        self._stack.callback(process.wait)
        self._stack.callback(os.killpg, process.pid, SIGKILL)
        return process

    def here(self, text: str, places: Mapping[str, str] = {}) -> str:
        """Return a text of the page with the places of this machine."""
        for page, ours in {"9092": str(self.port), "/srv/federation": str(self.folder), **places}.items():
            text = text.replace(page, ours)
        return text


def test_the_deployment_of_the_tutorial_trains_and_then_refuses(tmp_path: Path) -> None:
    for block in blocks_of(PAGE):
        if name := file_of(block):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(block.text, encoding="utf-8")
    _, server, configuration, keys, node, run, printed = (b.text for b in blocks_of(PAGE) if b.kind == "console")
    (tmp_path / "flwr").mkdir()
    with ExitStack() as stack:
        operator = Operator(tmp_path, stack)
        *certificates, superlink = commands_in(server)
        for line in certificates:
            operator.type(line)
        wait_for_port(operator.port, operator.start(superlink, "superlink.log"))
        (tmp_path / "flwr" / "config.toml").write_text(operator.here(configuration))
        for number, epsilon in enumerate(EPSILONS):
            places = {
                "node0": f"node{number}",
                "9100": str(free_port()),
                "partition-id=0": f"partition-id={number}",
                "/var/lib/nestegg": f"{tmp_path}/account{number}",
                "epsilon=25.0": f"epsilon={epsilon}",
            }
            for line in commands_in(keys):
                operator.type(line, places)
            (line,) = commands_in(node)
            operator.start(line, f"node{number}.log", places)
        (line,) = commands_in(run)
        said = operator.type(line)
        for shown in printed.splitlines():
            if "accuracy" not in shown:  # noise is drawn afresh
                assert shown.removeprefix("INFO :").strip() in said, (shown, said)
        assert (tmp_path / "monday" / "model.safetensors").exists()
        refused = operator.type(line, {"monday": "tuesday"})
        assert "all 4 nodes have refused" in refused
        assert "would make it epsilon = 31.97 of 25" in (tmp_path / "node0.log").read_text()
