"""Runs from Python: one's own model and data with all that `nestegg run` has, resumed bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import nestegg
from nestegg import InputError, StoppedError
from nestegg.ledger import Ledger
from nestegg.runs import RunFolder
from nestegg.training import Callback, Federation, RoundReport, State
from tests.callbacks import EachRound
from tests.conftest import Run
from tests.examples import slow
from tests.own_federation import NAMES, ROUNDS, make_federation, make_plan

ROOT = Path(__file__).parents[2]
OPTIMIZER, CURVE = partial(torch.optim.AdamW, weight_decay=0.1), [0.4, 0.3, 0.2, 0.1]
SAME = ("model.safetensors", "rounds.jsonl", "plan.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("own") / "whole"
    nestegg.run(make_federation(), folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_writes_what_nestegg_run_writes(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert {"run.json", "plan.json", "rounds.jsonl", "summary.json", "model.safetensors", "report.html"} <= names
    assert "config.toml" not in names
    summary = json.loads((whole / "summary.json").read_text())
    assert (summary["method"], summary["model"], summary["rounds"]) == ("spend-as-you-go", "Slope", ROUNDS)
    lines = [json.loads(line) for line in (whole / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, ROUNDS + 1))
    assert summary["final_accuracy"] == lines[-1]["accuracy"]
    for group, budget in zip(summary["groups"], (8.0, 20.0), strict=True):
        assert group["epsilon_spent"] == pytest.approx(budget, rel=1e-3)
    with Ledger(whole / "private" / "ledger.db", read_only=True) as ledger:
        ledger.verify()
        assert len(list(ledger.clients())) == len(NAMES)
    assert set(load_file(whole / "model.safetensors")) == {"hidden.weight", "hidden.bias", "out.weight", "out.bias"}


def test_every_file_says_not_for_release_where_noise_follows_from_a_seed(whole: Path, tmp_path: Path) -> None:
    for name, content in contents(whole).items():
        if not name.endswith((".db", ".lock", ".db-wal", ".db-shm")):
            assert b"not for release" in content, name
    nestegg.run(make_federation(reproducible=False), tmp_path / "secret")
    for name, content in contents(tmp_path / "secret").items():
        assert b"not for release" not in content, name
        if not name.startswith("private"):
            assert b"farm" not in content, name  # who takes part is not for release


@pytest.mark.parametrize("moment", ["save 3", *slow("told 2", "release 1", "line 4")])
def test_a_killed_run_goes_on_bit_for_bit(moment: str, whole: Path, tmp_path: Path) -> None:
    folder, (step, round_) = tmp_path / "run", moment.split()
    command = [sys.executable, "-m", "tests.own_federation", str(folder), step, round_]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert not (folder / "summary.json").exists()
    nestegg.run(make_federation(), folder, resume=True)
    for name in SAME:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    with Ledger(folder / "private" / "ledger.db", read_only=True) as ledger:
        ledger.verify()
        assert [charge["state"] for charge in ledger.charges()] == ["released"] * 2 * ROUNDS


class Enough(Callback):
    """Ends training after a round."""

    def __init__(self, after: int) -> None:
        self.after, self.heard = after, list[str]()

    def on_start(self, federation: Federation, state: State) -> None:
        self.heard.append(f"start {state.round}")

    def on_round(self, state: State, report: RoundReport) -> bool:
        self.heard.append(f"round {report.round}")
        return report.round == self.after

    def on_end(self, state: State) -> None:
        self.heard.append(f"end {state.round}")


def test_a_callback_ends_a_run_which_can_go_on(whole: Path, tmp_path: Path) -> None:
    callback, folder = Enough(2), tmp_path / "run"
    summary = nestegg.run(make_federation(), folder, callbacks=[callback])
    assert callback.heard == ["start 0", "round 1", "round 2", "end 2"]
    assert (summary["rounds"], summary["stopped"]) == (2, "was stopped after round 2 by Enough")
    assert "It was stopped after round 2 by Enough, and can go on." in (folder / "report.html").read_text()
    with Ledger(folder / "private" / "ledger.db", read_only=True) as ledger:
        assert ledger.account("farm 0").parts[0].rounds == 2  # later rounds are not charged
    late = Enough(99)
    assert "stopped" not in nestegg.run(make_federation(), folder, resume=True, callbacks=[late])
    assert late.heard == ["start 2", "round 3", "round 4", "end 4"]
    assert "stopped" not in nestegg.run(make_federation(), tmp_path / "last", callbacks=[Enough(ROUNDS)])
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    before = contents(folder)
    assert nestegg.run(make_federation(), folder, resume=True)["rounds"] == ROUNDS  # complete: nothing is done
    assert contents(folder) == before


def test_callbacks_hear_of_rounds_that_are_out(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def look(report: RoundReport) -> None:
        assert len((folder / "rounds.jsonl").read_text().splitlines()) == report.round
        with Ledger(folder / "private" / "ledger.db", read_only=True) as ledger:
            assert [charge["state"] for charge in ledger.charges()] == ["released"] * 2 * report.round

    nestegg.run(make_federation(), folder, callbacks=[EachRound(look)])


def test_a_callback_that_raises_stops_a_run_that_loses_nothing(whole: Path, tmp_path: Path) -> None:
    def fail(report: RoundReport) -> None:
        if report.round == 3:
            raise LookupError("no such tracker")

    with pytest.raises(
        StoppedError, match=r"EachRound raised LookupError: no such tracker\. The run can go on: nestegg"
    ):
        nestegg.run(make_federation(), tmp_path / "run", callbacks=[EachRound(fail)])
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 3
    nestegg.run(make_federation(), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped after two rounds."""
    folder = tmp_path_factory.mktemp("own") / "stopped"
    nestegg.run(make_federation(optimizer=OPTIMIZER, schedule=CURVE), folder, callbacks=[Enough(2)])
    return folder


@pytest.mark.parametrize(
    ("changes", "version", "sentence"),
    [
        ({"epochs": 2}, "", r"local\.epochs = 2 is not what the run in .* began with, 1"),
        ({"seed": 4}, "", "weights = '.*' is not what the run in"),
        ({"reproducible": False}, "", r"mechanics\.randomness\.reproducible = False is not what"),
        ({}, "2", "version = '2' is not what the run in .* began with, ''"),
        ({"optimizer": partial(torch.optim.AdamW, weight_decay=0.2)}, "", r"AdamW\(weight_decay=0\.2\)' is not what"),
        ({"schedule": [0.4, 0.3, 0.2, 0.2]}, "", r"rates = \[.*\] is not what the run in"),
        ({"plan": make_plan(method="idp-fedavg")}, "", "plan .* is not a plan of the run in"),
        ({"names": NAMES[::-1]}, "", "clients are not those of the run in .*: they are in another order"),
        ({"names": ["zoo", *NAMES[1:]]}, "", "1 are missing, such as 'farm 0' and 1 are new, such as 'zoo'"),
        ({"shift": 0.5}, "", "the data or the initial model is not what the run in .* began with"),
    ],
)
def test_another_federation_does_not_go_on(changes: dict[str, Any], version: str, sentence: str, stopped: Path) -> None:
    before, changes = contents(stopped), {"optimizer": OPTIMIZER, "schedule": CURVE, **changes}
    with pytest.raises(InputError, match=sentence):
        nestegg.run(make_federation(**changes), stopped, resume=True, version=version)
    assert contents(stopped) == before


def test_folders_that_do_not_fit(run: Run, whole: Path, stopped: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists; give another folder, or go on with it by resume=True"):
        nestegg.run(make_federation(), whole)
    refused = run("run", "--resume", whole)
    assert refused.code == 2
    assert "is a run from Python; it goes on there, with the same federation: nestegg.run(federation" in " ".join(
        refused.err.split()
    )
    assert run("ledger", "verify", "--ledger", whole).code == 0
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="is not a run"):
        nestegg.run(make_federation(), tmp_path / "empty", resume=True)
    folder = shutil.copytree(stopped, tmp_path / "run")
    with RunFolder(folder).locked(), pytest.raises(InputError, match="is in use"):
        nestegg.run(make_federation(optimizer=OPTIMIZER, schedule=CURVE), folder, resume=True)
    described = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**described, "values": {}}))
    with pytest.raises(InputError, match=r"run\.json is damaged: values has no 'mechanics\.randomness\.seed'"):
        nestegg.run(make_federation(), folder, resume=True)
    (folder / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"run\.json: format is missing"):
        nestegg.run(make_federation(), folder, resume=True)


def test_a_ledger_pays_for_several_runs_and_refuses_what_nobody_can_afford(run: Run, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    plan = make_plan(accountant="renyi")
    nestegg.run(make_federation(plan), tmp_path / "monday", ledger=ledger)
    with pytest.raises(StoppedError, match=r"would go over budget: .* nestegg ledger replan"):
        nestegg.run(make_federation(plan), tmp_path / "tuesday", ledger=f"sqlite:///{ledger}")
    assert json.loads((tmp_path / "tuesday" / "run.json").read_text())["ledger"] == f"sqlite:///{ledger}"
    with Ledger(ledger) as books:
        assert [part.rounds for part in books.account("farm 0").parts] == [ROUNDS, 0]
        books.set_budgets(dict.fromkeys(NAMES, nestegg.Budget(40.0)), reason="a test")
    assert run("ledger", "replan", tmp_path / "tuesday").code == 0
    assert nestegg.run(make_federation(plan), tmp_path / "tuesday", resume=True)["rounds"] == ROUNDS
    assert nestegg.load_plan(tmp_path / "tuesday" / "plan.json").digest != plan.digest
    with Ledger(ledger) as books:
        books.verify()
        books.withdraw("farm 1", "moved away")
    with pytest.raises(InputError, match=r"must be a URL, such as 'sqlite:///ledger.db', or a file"):
        nestegg.run(make_federation(plan), tmp_path / "wednesday", ledger=7)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="client 'farm 1' withdrew on"):
        nestegg.run(make_federation(plan), tmp_path / "wednesday", ledger=str(ledger))
    assert not (tmp_path / "wednesday").exists()


def test_no_noise_needs_no_ledger_and_gets_none(tmp_path: Path) -> None:
    free = make_plan(method="fedavg")
    with pytest.raises(InputError, match="adds no noise"):
        nestegg.run(make_federation(free), tmp_path / "run", ledger=tmp_path / "ledger.db")
    assert not (tmp_path / "run").exists()
    assert nestegg.run(make_federation(free), tmp_path / "run")["groups"][0]["epsilon_spent"] is None


def test_who_withdraws_is_not_sampled_again(tmp_path: Path) -> None:
    folder, absent = tmp_path / "run", []

    def leave(report: RoundReport) -> None:
        if report.round == 1:
            with Ledger(folder / "private" / "ledger.db") as ledger:
                ledger.withdraw("farm 2", "her wish")

    federation = make_federation()
    step = federation.step
    federation.step = lambda state, gone=(): (absent.append(set(gone)), step(state, gone))[1]  # type: ignore
    nestegg.run(federation, folder, callbacks=[EachRound(leave)])
    assert absent == [set(), {2}, {2}, {2}]


def test_a_model_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    federation = make_federation()
    step = federation.step

    def broken(state: State, absent: Any = ()) -> tuple[State, RoundReport]:
        state, report = step(state, absent)
        return (
            (State(state.round, state.model * torch.nan, 1.0, state.velocity), report)
            if state.round == 2
            else (
                state,
                report,
            )
        )

    federation.step = broken  # type: ignore[method-assign]
    with pytest.raises(StoppedError, match="not finite after round 2"):
        nestegg.run(federation, tmp_path / "run")
    with pytest.raises(StoppedError, match="not finite after round 2"):
        nestegg.run(make_federation(), tmp_path / "run", resume=True)


def made(method: str, seed: int) -> Federation:
    return make_federation(make_plan(method=method), seed=seed)


def test_methods_are_compared_and_go_on_after_an_interruption(tmp_path: Path) -> None:
    whole = nestegg.compare(made, tmp_path / "whole", methods=["fedavg", "idp-fedavg"], seeds=1)
    assert whole.curves["fedavg"].shape == (1, ROUNDS)
    lines = (tmp_path / "whole" / "idp-fedavg-0" / "rounds.jsonl").read_text().splitlines()
    assert whole.curves["idp-fedavg"][0].tolist() == [json.loads(line)["accuracy"] for line in lines]
    page = (tmp_path / "whole" / "comparison.html").read_text()
    for words in ("2 methods on own data", "gap to FedAvg", "not for release", "Seed 0."):
        assert words in page
    rows = (tmp_path / "whole" / "comparison.csv").read_text().splitlines()
    assert rows[0] == "method,seed,round,accuracy,note"
    assert len(rows) == 1 + 2 * ROUNDS
    asked = []

    def interrupted(method: str, seed: int) -> Federation:
        asked.append((method, seed))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return made(method, seed)

    with pytest.raises(StoppedError, match="What is done of the comparison is kept; the same call with resume=True"):
        nestegg.compare(interrupted, tmp_path / "c", methods=["fedavg", "idp-fedavg"], seeds=1)
    with pytest.raises(InputError, match="exists; give another folder, or go on with it by resume=True"):
        nestegg.compare(made, tmp_path / "c", methods=["fedavg", "idp-fedavg"], seeds=1)
    nestegg.compare(made, tmp_path / "c", methods=["fedavg", "idp-fedavg"], seeds=1, resume=True)
    for name in ("comparison.csv", "comparison-summary.csv", "comparison.json"):
        assert (tmp_path / "c" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("make", "methods", "sentence"),
    [
        (made, [], "must name at least one method"),
        (made, ["fedavg", "fedavg"], "none twice"),
        (made, ["../fedavg"], "must be a name that a folder can have"),
        (
            lambda method, seed: None,
            ["fedavg"],
            r"make\('fedavg', 0\) returned a NoneType; it must return a Federation",
        ),
    ],
)
def test_comparisons_that_make_no_sense(make: Any, methods: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        nestegg.compare(make, tmp_path / "c", methods=methods, seeds=1)
    assert not (tmp_path / "c").exists()
