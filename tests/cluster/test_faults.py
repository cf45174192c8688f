"""A worker, a node, the leading process and the head of a cluster are killed at every step of a round."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from bench.soak import STEPS

from tests.cluster.test_nodes import DRIVER, check_as_here, first
from tests.ray_nodes import RayNodes

pytestmark = [pytest.mark.slow, pytest.mark.soak]
WITHIN = "train"  # which workers do: there the gate holds them up
BEFORE = [step for step in STEPS if step not in (WITHIN, "within a transaction")]


@pytest.mark.parametrize("step", [WITHIN, *BEFORE])
@pytest.mark.parametrize("victim", ["worker", "node", "leader", "head"])
def test_whoever_is_killed_the_run_ends_as_here(victim: str, step: str, tmp_path: Path) -> None:
    with RayNodes(0, 1, 1) as nodes:
        if step == WITHIN:
            (tmp_path / "gate").touch()
        nodes.environment["HELD_BEFORE"] = BEFORE[0] if step == WITHIN else step
        led = nodes.start(*DRIVER, "durable" if step == WITHIN else "held", nodes.address, str(tmp_path))
        first(led, tmp_path, "waiting-*" if step == WITHIN else "held")
        # Before the second round there are workers; the gate is in the first.
        worker = first(led, tmp_path, "waiting-*" if step == WITHIN else "worker-*")
        process = int(worker.name.partition("-")[2])
        if victim == "worker":
            os.kill(process, signal.SIGKILL)
        elif victim == "node":
            nodes.kill_node_of(process)
        elif victim == "leader":
            led.kill()
        else:
            nodes.kill(0)
        for name in ("gate", "held"):
            (tmp_path / name).unlink(missing_ok=True)
        out, err = led.communicate(timeout=200)
        if victim in ("worker", "node"):
            assert led.returncode == 0, out + err
    if led.returncode != 0:
        with RayNodes(0, 1) as nodes:
            code, said = nodes.run(*DRIVER, "durable", nodes.address, str(tmp_path))
            assert code == 0, said
    check_as_here(nodes, tmp_path)
