"""Crashes, races and broken disks: no charge is lost, no round comes out twice, and what stopped can go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nestegg import Budget, Group, InputError, StoppedError, VerificationError, plan
from nestegg.accounting import filter_order, renyi_account
from nestegg.configuration.config import load_config
from nestegg.ledger import Ledger
from nestegg.runs import resume_run, start_run
from nestegg.training import RoundReport
from tests.callbacks import EachRound
from tests.power import durable

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CONFIG = """
[federation]
clients = 6
[model]
name = "linear"
[training]
rounds = 4
local_epochs = 1
[ledger]
url = "URL"
[privacy]
[[privacy.groups]]
name = "all"
clients = 6
epsilon = 5.0
"""


def config(folder: Path, url: str) -> Path:
    path = folder / "config.toml"
    path.write_text(CONFIG.replace("URL", url))
    return path


def interrupt(report: RoundReport) -> None:
    if report.round == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 32), ("postgresql", 10)])
def test_kill_9_at_every_step_and_at_random_moments(kind: str, kills: int, request: pytest.FixtureRequest) -> None:
    options = ["--kills", str(kills)]
    if kind == "postgresql":
        request.getfixturevalue("postgres")  # skips where there is none
        options.append("--postgresql")
    command = [sys.executable, "-m", "bench.soak", *options]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n0 faults" in done.stdout


def race(url: str, names: list[str]) -> list[int]:
    """Let a process for each name spend that run's rounds, all at once; returns how many each has released."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.racer", url, name, str(i)],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i, name in enumerate(names)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    outputs = []
    for racer in racers:  # none waits for another's end
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    for racer in racers:
        output, _ = racer.communicate()
        assert racer.returncode == 0
        outputs.append(int(output))
    return outputs


def test_servers_that_share_clients_cannot_spend_the_same_budget(url: str) -> None:
    made = plan([Group("all", 5, Budget(3.0))], 30, method="idp-fedavg")
    names = [f"client {i}" for i in range(5)]
    with Ledger(url) as ledger:
        ledger.set_budgets({name: Budget(4.0) for name in names})
        for run in ("a", "b", "c"):
            ledger.begin(run, made, names)
        # All charges are alike, so it is known how many rounds fit, whoever makes them.
        account = renyi_account(filter_order(4.0, 1e-5))  # by which the ledger keeps clients that outlive a run
        release = account.spend(0.9, made.groups[0].noise_multiplier[0])
        fit = next(n for n in range(1, 91) if (release * (n + 1)).epsilon(1e-5)[0] > 4.0)
        assert sum(race(url, ["a", "b", "c"])) == fit
        assert ledger.account("client 3").epsilon <= 4.0
        ledger.verify()


def test_two_processes_at_one_run_release_every_round_once(url: str) -> None:
    names = [f"client {i}" for i in range(5)]
    with Ledger(url) as ledger:
        books = ledger.begin(
            "a", plan([Group("all", 5, Budget(3.0))], 30, method="idp-fedavg"), names, unknown=[Budget(3.0)] * 5
        )
        assert sum(race(url, ["a", "a"])) == 30
        assert books.state.done == 30
        assert ledger.account("client 0").parts[0].rounds == 30
        assert [charge["state"] for charge in ledger.charges()] == ["released"] * 30
        ledger.verify()


@pytest.mark.parametrize("manner", ["careful", "careless"])
def test_the_charge_is_on_disk_before_the_first_client_works(manner: str, tmp_path: Path) -> None:
    """The disk keeps only what was synced. A child without syncs shows that the test would notice."""
    shim = durable.compile_shim(tmp_path)
    if shim is None:
        pytest.skip("no C compiler here to build the library that watches fsync")
    root, shadow = tmp_path / "disk", tmp_path / "shadow"
    root.mkdir()
    settings = config(root, f"sqlite:///{root / 'ledger.db'}")
    environment = {**ENVIRONMENT, **durable.environment(shim, root, shadow)}
    command = [sys.executable, "-m", "tests.power.child", str(settings), str(root / "run"), manner]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        found = []
        for mark in ("work", "out"):
            assert child.stdout.readline() == f"{mark}\n"
            durable.image(shadow, root, tmp_path / mark)
            found.append(_after_power_loss(tmp_path / mark))
            child.stdin.write("\n")
            child.stdin.flush()
        child.kill()
    if manner == "careless":
        assert found == [(0, None, False), (0, None, True)]
    else:
        assert found == [(1, "reserved", False), (1, "released", True)]


def _after_power_loss(disk: Path) -> tuple[int, str | None, bool]:
    """Rounds charged, the state of the last, and whether there is a checkpoint."""
    charges = []
    if (disk / "ledger.db").exists() and (disk / "ledger.db").stat().st_size:
        with Ledger(f"sqlite:///{disk / 'ledger.db'}") as ledger:
            ledger.verify()
            charges = list(ledger.charges())
    checkpoint = (disk / "run" / "checkpoint.safetensors").exists()
    return len(charges), charges[-1]["state"] if charges else None, checkpoint


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, as small as a test wants it."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or _mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", place):
        pytest.skip("a file system cannot be mounted here: that takes root, and a machine that lets it")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def _mount(*options: Any) -> int:
    return subprocess.run(["mount", *options], check=False, capture_output=True).returncode


def test_a_full_disk_stops_a_run_before_it_releases_anything(small_disk: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{small_disk / 'ledger.db'}"
    settings = load_config(config(tmp_path, url))
    ballast = small_disk / "ballast"

    def fill(report: RoundReport) -> None:
        if report.round == 2:
            with ballast.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass

    with pytest.raises(StoppedError, match=r"(disk is full|disk I/O error).*The run can go on: nestegg run --resume"):
        start_run(settings, tmp_path / "run", callbacks=[EachRound(fill)])
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2
    ballast.unlink()
    assert _finishes(tmp_path / "run", url)


def test_a_read_only_ledger_refuses_a_run_which_then_goes_on(small_disk: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{small_disk / 'ledger.db'}"
    with pytest.raises(StoppedError, match="It was interrupted"):
        start_run(load_config(config(tmp_path, url)), tmp_path / "run", callbacks=[EachRound(interrupt)])
    assert _mount("-o", "remount,ro", small_disk) == 0
    with pytest.raises(InputError, match=r"ledger\.db cannot be used: .*(readonly|unable to open)"):
        resume_run(tmp_path / "run")
    with Ledger(url, read_only=True) as ledger:  # to look at it is no problem
        assert ledger.verify()[0].entry == 6
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2
    assert _mount("-o", "remount,rw", small_disk) == 0
    assert _finishes(tmp_path / "run", url)


def test_a_database_that_goes_away_and_comes_back(postgres: Any, tmp_path: Path) -> None:
    url = postgres.new_database()

    def stop(report: RoundReport) -> None:
        if report.round == 2:
            postgres.stop("immediate")

    try:
        with pytest.raises(StoppedError, match="The run can go on: nestegg run --resume"):
            start_run(load_config(config(tmp_path, url)), tmp_path / "run", callbacks=[EachRound(stop)])
        with pytest.raises(InputError, match="cannot be used: connection"):
            resume_run(tmp_path / "run")
    finally:
        postgres.start()
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2
    assert _finishes(tmp_path / "run", url)


def test_a_corrupted_page_stops_a_run_and_a_backup_heals_it(tmp_path: Path) -> None:
    path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
    url = f"sqlite:///{path}"
    with pytest.raises(StoppedError, match="It was interrupted"):
        start_run(load_config(config(tmp_path, url)), tmp_path / "run", callbacks=[EachRound(interrupt)])
    with Ledger(url, read_only=True) as ledger:
        ledger.backup(backup)
    whole = path.read_bytes()
    noticed = 0
    for page in range(1, len(whole) // 4096):
        broken = bytearray(whole)
        broken[page * 4096 : (page + 1) * 4096] = os.urandom(4096)
        path.write_bytes(broken)
        try:
            with Ledger(url) as ledger:
                ledger.verify()
        except (InputError, VerificationError):
            noticed += 1
            if page % 5 == 0:
                with pytest.raises((InputError, StoppedError, VerificationError)):
                    resume_run(tmp_path / "run")
                assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2
    assert noticed > len(whole) // 4096 / 2
    for leftover in tmp_path.glob("ledger.db*"):
        leftover.unlink()
    shutil.copy(backup, path)
    assert _finishes(tmp_path / "run", url)


def _finishes(folder: Path, url: str) -> bool:
    """The run goes to its end, with every round paid once."""
    resume_run(folder)
    with Ledger(url, read_only=True) as ledger:
        ledger.verify()
        return [charge["state"] for charge in ledger.charges()] == ["released"] * 4
