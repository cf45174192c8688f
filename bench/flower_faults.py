"""The fault matrix on real processes: a SuperLink and SuperNodes over TLS, killed and misled at every step.

    python -m bench.flower_faults [FAULT …]

After every fault: the run ends or is resumed, the noise of what was released is what the plan says, and nobody is over
budget on either side's ledger.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
from safetensors.numpy import load_file

from nestegg import Ledger
from nestegg.flower.loopback import Loopback, make_node_key

APP = Path(__file__).parent / "fault_app"
ROUNDS, PATIENCE = 3, 240.0
STEPS = ("reserve", "exchange", "save_checkpoint", "release", "append_line")


class Trial:
    """One federation, and one run after another in it."""

    def __init__(self, federation: Loopback, folder: Path, name: str) -> None:
        self.federation, self.folder = federation, folder / name
        self.folder.mkdir()

    def run(self, **config: str | float) -> None:
        """A run to its end."""
        process = self.start(**config)
        if process.wait(PATIENCE):
            raise RuntimeError("flwr run failed")

    def start(self, **config: str | float) -> subprocess.Popen[str]:
        """Start a run."""
        given: dict[str, str | float] = {"folder": str(self.folder), "rounds": ROUNDS}
        given |= {k.replace("_", "-"): v for k, v in config.items()}
        return self.federation.run(APP, given, self.folder / f"flwr{time.time()}.log")

    def wait_for(self, name: str) -> None:
        """Wait until somebody has left a file."""
        end = time.monotonic() + PATIENCE
        while not (self.folder / name).exists():
            if time.monotonic() > end:
                raise RuntimeError(f"{name} does not appear")
            time.sleep(0.05)

    def check(self, paid: int = ROUNDS) -> str:
        """Everything that must hold after a fault; returns what was measured."""
        sys.path.insert(0, str(APP))
        from fault_app import make_plan

        plan = make_plan(ROUNDS)
        with Ledger(self.folder / "run" / "private" / "ledger.db", read_only=True) as ledger:
            ledger.verify()
            (state,) = ledger.history().runs.values()
        for number in range(3):
            with Ledger(self.folder / f"account{number}" / "ledger.db", read_only=True) as ledger:
                ledger.verify()
        weights = load_file(self.folder / "run" / "model.safetensors")["a.weight"]
        total = sum((plan.round_noise_multiplier[t] / (plan.mean_sampling_rate[t] * 3)) ** 2 for t in range(ROUNDS))
        ratio = float(weights.std() / np.sqrt(total))
        if (state.done, len(state.paid)) != (ROUNDS, paid) or abs(ratio - 1) > 0.015:
            raise RuntimeError(f"{state.done} rounds done, {len(state.paid)} paid, noise is {ratio:.4f} of the plan's")
        return f"noise {ratio:.4f} of the plan's, {len(state.paid)} rounds paid, nobody over on either side"


def server_process() -> int:
    """The ServerApp's process."""
    for process in psutil.process_iter(["cmdline"]):
        if any("flwr-serverapp" in part for part in process.info["cmdline"] or []):
            return int(process.pid)
    raise RuntimeError("there is no ServerApp")


def client_fault(fault: str) -> Callable[[Trial], None]:
    """A client that misbehaves by itself."""
    return lambda trial: trial.run(client_fault=fault)


def killed_node(when: str) -> Callable[[Trial], None]:
    """A SuperNode that is killed before, during or after its work of round 2; it comes back under another key."""

    def play(trial: Trial) -> None:
        process = trial.start(client_fault="die-during" if when == "during" else "")
        trial.wait_for({"before": "working0-1", "during": "working0-2", "after": "working1-3"}[when])
        trial.federation.kill("node0")
        if process.wait(PATIENCE):
            raise RuntimeError("flwr run failed")
        trial.federation.register(0)
        trial.federation.start_node(0)

    return play


def killed_server(step: str, when: str, superlink: bool) -> Callable[[Trial], None]:
    """The ServerApp, or the SuperLink with it, is killed at a step of round 2; then the same run goes on."""

    def play(trial: Trial) -> None:
        process = trial.start(server_fault=f"{step}-{when}")
        trial.wait_for("stopped")
        if superlink:
            trial.federation.kill("superlink")
        server = server_process() if not superlink else None
        if server is not None:
            os.kill(server, signal.SIGKILL)
        process.kill()
        process.wait()
        if superlink:
            for child in psutil.process_iter(["cmdline"]):
                if any("flwr-serverapp" in part for part in child.info["cmdline"] or []):
                    child.kill()
            trial.federation.start_superlink()
        trial.run()

    return play


def swapped_plan(trial: Trial) -> None:
    """Every guard refuses the orders of round 2, by which the server stops; then it asks for what was agreed on."""
    trial.start(server_fault="swap").wait(PATIENCE)
    if (trial.folder / "run" / "model.safetensors").exists():
        raise RuntimeError("the run went on without anybody")
    trial.run()


def wrong_key(trial: Trial) -> None:
    """A node whose key nobody has registered tries to get in."""
    make_node_key(trial.federation.folder / "stranger")
    trial.federation.start_node(3, key="stranger")
    trial.run()
    if "enrolled" in trial.federation.log("node3"):
        raise RuntimeError("the stranger is in")
    trial.federation.kill("node3")


FAULTS: dict[str, Callable[[Trial], None]] = {
    "none": lambda trial: trial.run(),
    **{f"client: {name}": client_fault(name) for name in ("nan", "huge", "shape", "raise", "late")},
    "guard refuses: plan swapped in round 2": swapped_plan,
    "stranger's key": wrong_key,
    **{
        f"{'superlink' if link else 'server'} killed {when} {step}": killed_server(step, when, link)
        for link in (False, True)
        for step in STEPS
        for when in ("before", "after")
    },
    **{f"node killed {when} its work": killed_node(when) for when in ("before", "during", "after")},
}


def main(wanted: list[str]) -> int:
    """Play the faults whose names hold a word, all by default; returns an exit code."""
    nodes = [{"partition-id": number, "num-partitions": 3} for number in range(4)]
    failed, played = 0, 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        with Loopback(folder / "federation", nodes, started=3) as federation:
            for number, (name, play) in enumerate(FAULTS.items()):
                if wanted and not any(word in name for word in wanted):
                    continue
                trial, started = Trial(federation, folder, str(number)), time.monotonic()
                try:
                    play(trial)
                    said = trial.check()
                except Exception as error:
                    failed, said = failed + 1, f"FAILED: {type(error).__name__}: {error}"
                played += 1
                print(f"{name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{played} faults, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
