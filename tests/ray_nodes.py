"""A real Ray cluster of several nodes for tests: each with processes of its own, on free loopback ports.

A process of its own holds the nodes, because Ray connects a process to one cluster; it is told what to do by lines.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

import psutil


class RayNodes:
    """Nodes that can be added and killed; the first is the head.

    Args:
        processors: of each node.
    """

    def __init__(self, *processors: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: sockets' names have at most 107 characters
        settings = {
            "RAY_TMPDIR": str(self.folder),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback only
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        self.environment = {**os.environ, **settings, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ray_nodes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            text=True,
            start_new_session=True,
        )
        self.address = ""
        for number in processors:
            self.add(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ask({"do": "end"})
        self._process.communicate(timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, processors: int = 1, gpus: int = 0, **environment: str) -> int:
        """Start a node, with settings of its own; returns its number."""
        answer = self._ask({"do": "add", "num_cpus": processors, "num_gpus": gpus, "env_vars": environment})
        self.address = answer["address"]
        number: int = answer["number"]
        return number

    def kill(self, number: int) -> None:
        """Kill all processes of a node at once."""
        self._ask({"do": "kill", "number": number})

    def kill_node_of(self, process: int) -> None:
        """Kill all processes of the node that one of its workers belongs to."""
        self._ask({"do": "kill", "worker": process})

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a Python process that finds this cluster."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        given = {"env": self.environment, **pipes, **options}
        return subprocess.Popen([sys.executable, *arguments], **given)

    def run(self, *arguments: str, **options: Any) -> tuple[int, str]:
        """Run a Python process that finds this cluster; returns its exit code and what it said."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=300)
        return process.returncode, out + err

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def serve() -> None:
    """Hold nodes, and do what lines say, until the last."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    nodes: list[Any] = []
    for line in sys.stdin:
        what = json.loads(line)
        answer: dict[str, Any] = {}
        if what["do"] == "add":
            given = {key: what[key] for key in ("num_cpus", "num_gpus", "env_vars")}
            head = {} if nodes else {"include_dashboard": False}
            nodes.append(cluster.add_node(**given, **head))
            answer = {"address": cluster.address, "number": len(nodes) - 1}
        elif what["do"] == "kill":
            number = what["number"] if "number" in what else _node_of(nodes, what["worker"])
            cluster.remove_node(nodes[number], allow_graceful=False)
        print(json.dumps(answer), flush=True)
        if what["do"] == "end":
            break
    cluster.shutdown()


def _node_of(nodes: list[Any], worker: int) -> int:
    """The number of the node whose raylet started a process."""
    parent = psutil.Process(worker).ppid()
    return next(i for i, node in enumerate(nodes) if node.all_processes["raylet"][0].process.pid == parent)


if __name__ == "__main__":
    serve()
