"""Real processes: Flower's simulation engine on Ray, and its deployment engine over TLS with authenticated nodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from bench import recipe_on_flower
from nestegg import Ledger
from nestegg.flower.enrolment import Roster
from nestegg.flower.loopback import Loopback
from tests.examples import soak

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
RAY = {**recipe_on_flower.RAY, "OMP_NUM_THREADS": "1"}
EPSILONS = (20.0, 20.0, 40.0, 80.0)


@pytest.mark.parametrize(
    "inputs", [soak((), "inputs"), soak(("features",), "features"), pytest.param(("balanced",), id="balanced")]
)
def test_the_same_seed_gives_the_same_model_as_the_simulator(inputs: tuple[str, ...], tmp_path: Path) -> None:
    """On Flower's simulation engine, to float tolerance: cohorts, batches, clipping and noise are the same."""
    command = [sys.executable, "-m", "tests.simulation", str(tmp_path), *inputs]
    environment = os.environ | RAY | {"FLWR_HOME": str(tmp_path / "flwr")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    ours, flowers = np.load(tmp_path / "simulator.npy"), np.load(tmp_path / "flower.npy")
    assert np.abs(ours).max() > 0.1
    np.testing.assert_allclose(flowers, ours, rtol=0, atol=1e-5)
    for number in range(8):
        with Ledger(tmp_path / "accounts" / str(number) / "ledger.db", read_only=True) as ledger:
            ledger.verify()


def test_the_example_asks_no_package_index(tmp_path: Path) -> None:
    """By Flower's own installer, with nothing cached and nobody to ask."""
    app = shutil.copytree(EXAMPLE, tmp_path / "app")
    offline = {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache"), "FLWR_HOME": str(tmp_path / "flwr")}
    install = (
        "import sys; from flwr.supercore.superexec.dependency_installer import install_app_dependencies as install"
    )
    command = [sys.executable, "-c", f"{install}; install(sys.argv[1])", str(app)]
    result = subprocess.run(command, env=os.environ | RAY | offline, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of the example on a SuperLink and four SuperNodes, over TLS."""
    folder = tmp_path_factory.mktemp("deployment")
    nodes: list[dict[str, str | float]] = [
        {"partition-id": i, "num-partitions": 4, "account": str(folder / f"account{i}"), "epsilon": e, "delta": 1e-5}
        for i, e in enumerate(EPSILONS)
    ]
    with Loopback(folder / "federation", nodes) as federation:
        run = federation.run(EXAMPLE, {"folder": str(folder / "run"), "rounds": 2}, folder / "flwr.log")
        assert run.wait() == 0
    assert (folder / "run" / "model.safetensors").exists(), (folder / "flwr.log").read_text()
    return folder


def test_a_deployment_over_tls_keeps_both_sides_accounts(deployment: Path) -> None:
    roster = Roster.load(deployment / "run" / "roster.json")
    assert [member.epsilon for member in roster.members] == list(EPSILONS)
    assert all(len(member.client) == 64 for member in roster.members)  # the SHA-256 of a key
    with Ledger(deployment / "run" / "private" / "ledger.db", read_only=True) as ledger:
        ledger.verify()
        (state,) = ledger.history().runs.values()
        server = {account.budget.epsilon: account.epsilon for account in ledger.accounts()}
    assert (state.done, len(state.paid)) == (2, 2)
    for number, epsilon in enumerate(EPSILONS):
        with Ledger(deployment / f"account{number}" / "ledger.db", read_only=True) as own:
            own.verify()
            assert own.account("own").epsilon <= server[epsilon] + 1e-9
    lines = [json.loads(line) for line in (deployment / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    assert lines[-1]["epsilon-middle"] == pytest.approx(40.0, rel=1e-3)


def test_nothing_is_told_that_is_a_secret_and_nothing_is_left_running(deployment: Path) -> None:
    told = (deployment / "flwr.log").read_text()
    assert "Spent" in told
    for secret in ("cohort", "sampled", "Received", "partition"):
        assert secret not in told
    for process in psutil.process_iter(["cmdline"]):
        assert str(deployment) not in " ".join(process.info["cmdline"] or [])
