"""Training on real Ray nodes: the same bits, whoever is lost; and what is said where it cannot be done."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import ray
import torch

from nestegg import InputError, Ledger
from nestegg.training import kernel
from nestegg.training.connecting import connect
from tests.cluster import driver
from tests.cluster.commands import everything
from tests.ray_nodes import RayNodes

pytestmark = pytest.mark.slow
DRIVER = ("-m", "tests.cluster.driver")


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with RayNodes(0, 1, 1) as nodes:
        yield nodes


@pytest.fixture
def address(nodes: RayNodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The cluster's address, for this process, which is not connected afterwards."""
    # Another test may have imported Ray before, and Ray reads this setting then.
    monkeypatch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
    yield nodes.address
    ray.shutdown()


def test_the_same_bits_on_two_nodes_as_here(address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = driver.same(address, tmp_path)
    assert len(found) == 7
    assert all(found.values()), found
    assert "A Ray cluster is ready" in caplog.text
    assert len(list(tmp_path.glob("node-*"))) == 2  # both have loaded clients


def test_every_command_gives_the_same_on_a_cluster(address: str, tmp_path: Path) -> None:
    here, there = everything(tmp_path / "here"), everything(tmp_path / "there", "--cluster", address)
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []


def test_a_node_is_killed_within_a_round(nodes: RayNodes, tmp_path: Path) -> None:
    check_without_a_node(nodes, tmp_path)


def check_without_a_node(nodes: RayNodes, folder: Path) -> None:
    """Kill the node of a worker that trains, and check that the run comes to the same end."""
    (folder / "gate").touch()
    led = nodes.start(*DRIVER, "durable", nodes.address, str(folder))
    waiting = first(led, folder, "waiting-*")
    nodes.kill_node_of(int(waiting.name.partition("-")[2]))
    (folder / "gate").unlink()
    out, err = led.communicate(timeout=200)
    assert led.returncode == 0, out + err
    check_as_here(nodes, folder)


@pytest.mark.soak
def test_a_node_with_idle_workers_is_killed(tmp_path: Path) -> None:
    """Ray notices late that a node is gone: what was lost with it is not given to its other workers."""
    with RayNodes(0, 4, 1) as nodes:
        check_without_a_node(nodes, tmp_path)


@pytest.mark.soak
def test_a_node_that_joins_is_used(nodes: RayNodes, tmp_path: Path) -> None:
    led = nodes.start(*DRIVER, "joins", nodes.address, str(tmp_path))
    first(led, tmp_path, "began")
    nodes.add(1)
    out, err = led.communicate(timeout=200)
    assert led.returncode == 0, out + err
    assert "joined" in out


def test_the_leading_process_is_killed_within_a_round_and_the_run_goes_on(nodes: RayNodes, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    led = nodes.start(*DRIVER, "durable", nodes.address, str(tmp_path))
    first(led, tmp_path, "waiting-*")
    led.kill()
    led.communicate()
    (tmp_path / "gate").unlink()
    code, said = nodes.run(*DRIVER, "durable", nodes.address, str(tmp_path))
    assert code == 0, said
    check_as_here(nodes, tmp_path)


def test_nodes_that_cannot_take_part_are_named(nodes: RayNodes, tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "nestegg"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'nestegg'\")\n")
    older = tmp_path / "older"
    older.mkdir()
    (older / "sitecustomize.py").write_text("import torch\ntorch.__version__ = '2.0.1'\n")
    numbers = [nodes.add(1, PYTHONPATH=str(fake.parent)), nodes.add(1, PYTHONPATH=str(older))]
    try:
        code, said = nodes.run(*DRIVER, "refused", nodes.address, str(tmp_path))
    finally:
        for number in numbers:
            nodes.kill(number)
    assert code == 0, said
    assert "is not used: ModuleNotFoundError: No module named 'nestegg'." in said
    assert f"is not used: it has torch 2.0.1, and this machine {torch.__version__.partition('+')[0]}." in said
    assert "9 workers ask for a processor each: the cluster has " in said
    assert "1 workers ask for a GPU each: the cluster has " in said
    for line in said.splitlines():
        assert "Traceback" not in line


@pytest.mark.soak
def test_a_node_without_the_data_is_named_and_the_others_train(nodes: RayNodes, tmp_path: Path) -> None:
    number = nodes.add(1, DATA_IS_MISSING="1")
    try:
        code, said = nodes.run(*DRIVER, "durable", nodes.address, str(tmp_path))
    finally:
        nodes.kill(number)
    assert code == 0, said
    assert "is not used: FileNotFoundError: people.parquet is not here." in said
    check_as_here(nodes, tmp_path)


@pytest.mark.soak
def test_a_node_with_another_kernel_holds_all_to_it_or_is_named(nodes: RayNodes, tmp_path: Path) -> None:
    here, *_, least = kernel.instruction_sets()
    command = (*DRIVER, "kernels", nodes.address, str(tmp_path))
    number = nodes.add(1, NESTEGG_KERNEL=least)
    try:
        _, said = nodes.run(*command)
        _, asked = nodes.run(*command, env={**nodes.environment, "NESTEGG_KERNEL": here})
    finally:
        nodes.kill(number)
    assert f"held to {least}\n" in said
    assert f"is not used: it has no kernel for {here}." in asked
    assert f"held to {here}\n" in asked


@pytest.mark.soak
def test_whoever_waits_for_processors_of_others_is_told(nodes: RayNodes, tmp_path: Path) -> None:
    code, said = nodes.run(*DRIVER, "full", nodes.address, str(tmp_path))
    assert code == 0, said
    assert re.search(r"Nothing is begun until there is room: the cluster has \d processors? \(0 free\)\.", said)
    assert "done [(0, 1), (1, 2), (2, 3)]" in said


def test_a_cluster_of_another_version_is_refused(nodes: RayNodes) -> None:
    code = (
        "import ray; ray.__version__ = '2.1.0'\n"
        "from nestegg import InputError; from nestegg.training.connecting import connect\n"
        f"try: connect({nodes.address!r})\n"
        "except InputError as error: print(error)"
    )
    _, said = nodes.run("-c", code)
    assert "cannot be used: it has Ray 2." in said
    assert "and this machine has Ray 2.1.0 on Python" in said


@pytest.mark.parametrize("address", ["somewhere", "host:", "a b:1", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"must be 'local', 'auto', or host:port"):
        connect(address)


def test_nobody_at_an_address_is_said() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InputError, match=rf"cluster = '127.0.0.1:{port}' does not answer, tried for up to 5 s: Conn"):
        connect(f"127.0.0.1:{port}")


def test_a_service_that_is_not_ray_is_said() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(InputError, match="something else than Ray answers there"):
            connect(f"127.0.0.1:{server.server_port}")
        server.shutdown()


def first(led: subprocess.Popen[str], folder: Path, pattern: str) -> Path:
    """The first file of this name that a process makes."""
    while not (found := list(folder.glob(pattern))):
        assert led.poll() is None, "".join(led.communicate())
        time.sleep(0.05)
    return found[0]


def check_as_here(nodes: RayNodes, folder: Path) -> None:
    """A run on the cluster has the bits of one on this machine, and has paid each round once."""
    here = folder / "here"
    here.mkdir()
    code, said = nodes.run(*DRIVER, "durable", "here", str(here))
    assert code == 0, said
    models = [(place / "run" / "model.safetensors").read_bytes() for place in (folder, here)]
    assert models[0] == models[1]
    spent = []
    for place in (folder, here):
        with Ledger(place / "ledger.db") as ledger:
            ledger.verify()
            spent.append([(account.example, account.epsilon) for account in ledger.accounts()])
    assert spent[0] == spent[1]
