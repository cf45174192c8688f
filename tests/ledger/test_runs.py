"""Runs with a ledger: refused, planned anew, resumed, and never out twice."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nestegg import Budget, InputError, StoppedError, load_plan
from nestegg.configuration.config import load_config
from nestegg.configuration.description import of_config
from nestegg.ledger import Ledger
from nestegg.release import NOT_FOR_RELEASE
from nestegg.runs import RunFolder, resume_run, start_run
from nestegg.training import RoundReport
from tests.callbacks import EachRound
from tests.conftest import Run
from tests.examples import slow
from tests.ledger.ledgers import begun, config, lifetimes, spend
from tests.runs.test_runs import config as plain_config


def test_a_run_that_its_ledger_would_refuse_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    settings = config(tmp_path)
    by_pld = tmp_path / "pld.toml"
    by_pld.write_text(settings.read_text().replace("[privacy]", '[privacy]\naccountant = "pld"'))
    refused = run("run", by_pld, "--out", "r")
    assert (refused.code, "are not valid in general" in " ".join(refused.err.split())) == (2, True)
    assert run("ledger", "budgets", "set", "client-3", "--epsilon", 20).code == 0
    assert run("ledger", "withdraw", "client-3", "--reason", "moved away").code == 0
    refused = run("run", settings, "--out", "r")
    assert (refused.code, "client 'client-3' withdrew on" in " ".join(refused.err.split())) == (2, True)
    assert not Path("r").exists()


def test_a_reproducible_run_is_not_for_release_in_the_ledger_either(run: Run, tmp_path: Path) -> None:
    assert run("run", config(tmp_path), "--out", "monday").code == 0
    name = str(load_config("monday/config.toml").ledger.run)
    with Ledger("sqlite:///ledger.db") as ledger:
        assert ledger.books(name).state.note == NOT_FOR_RELEASE
    assert json.loads(run("ledger", "show", "--json").out)["runs"][0]["note"] == NOT_FOR_RELEASE
    client = ("show", "--client", "client-1")
    for words in (("show",), ("show", "--run", name), client, (*client, "--json"), ("verify",)):
        assert "not for release" in " ".join(run("ledger", *words).out.split())
    assert run("ledger", "budgets", "set", "nobody", "--epsilon", 3, "--new").code == 0
    for option in ("--accounts", "--budgets"):
        assert run("ledger", "export", "rows.csv", option).code == 0
        with Path("rows.csv").open(newline="") as file:
            notes = {row["client"]: row["note"] for row in csv.DictReader(file)}
        assert (notes.pop("nobody"), set(notes.values())) == ("", {NOT_FOR_RELEASE})
    assert run("ledger", "export", "charges.csv").code == 0
    with Path("charges.csv").open(newline="") as file:
        assert {row["note"] for row in csv.DictReader(file)} == {NOT_FOR_RELEASE}


def test_a_runs_own_ledger_is_private_and_has_one_plan(run: Run, tmp_path: Path) -> None:
    assert run("run", plain_config(tmp_path), "--out", "alone").code == 0
    private = tmp_path / "alone" / "private"
    assert (private.stat().st_mode & 0o777, (private / "ledger.db").is_file()) == (0o700, True)
    assert not (tmp_path / "alone" / "ledger.db").exists()
    with Ledger(private / "ledger.db", read_only=True) as ledger:
        assert {account.rule.name for account in ledger.accounts()} == {"fixed"}
    older = tmp_path / "older"
    older.mkdir()
    settings = load_config("alone/config.toml")
    assert of_config(settings).ledger_in(older) == older / "private" / "ledger.db"
    (older / "ledger.db").touch()  # as runs had it before
    assert of_config(settings).ledger_in(older) == older / "ledger.db"


def test_a_run_says_that_its_ledger_does_not_know_its_clients(run: Run, tmp_path: Path) -> None:
    """As where budgets were set in another ledger than the one that the configuration names."""
    done = run("run", config(tmp_path), "--out", "monday")
    said = " ".join((done.out + done.err).split())
    assert "ledger.db does not know 12 of 12 clients: this run's budgets become theirs, " in said


@pytest.mark.parametrize("method", ["spend-as-you-go", *slow("adaptive-clipping", "shaped")])
def test_a_second_run_is_refused_and_then_planned_anew(method: str, run: Run, tmp_path: Path) -> None:
    settings = config(tmp_path, method)
    assert run("ledger", "budgets", "import", lifetimes(tmp_path)).out.startswith(
        "12 clients have their budgets. Accounts"
    )
    monday = run("run", settings, "--out", "monday")
    assert (monday.code, "does not know" in monday.out + monday.err) == (0, False)
    refused = run("run", settings, "--out", "tuesday")
    assert refused.code == 3
    sentence = refused.err.replace("\n", " ")
    assert "would go over budget: epsilon = " in sentence
    assert "of these 6 rounds would fit. Nothing was charged." in sentence
    assert "nestegg ledger replan tuesday; and then: nestegg run --resume tuesday" in sentence
    with Ledger("sqlite:///ledger.db") as ledger:
        assert [part.rounds for part in ledger.account("client-1").parts] == [6, 0]
    assert run("run", "--resume", "tuesday").code == 3  # nothing has changed
    replanned = run("ledger", "replan", "tuesday")
    assert replanned.code == 0
    assert "Go on: nestegg run --resume tuesday" in replanned.out
    resumed = run("run", "--resume", "tuesday")
    assert resumed.code == 0
    load_plan("tuesday/plan.json").verify()
    with Ledger("sqlite:///ledger.db") as ledger:
        ledger.verify()
        strict = ledger.account("client-1")
        assert strict.epsilon == pytest.approx(13.0, rel=1e-3)
        assert not any(account.is_over for account in ledger.accounts())
    (group, _) = json.loads(Path("tuesday/summary.json").read_text())["groups"]
    assert group["epsilon"] == 13.0
    assert group["epsilon_earlier"] == pytest.approx(strict.without(strict.parts[1].run))
    assert group["epsilon_here"] == pytest.approx(strict.within(strict.parts[1].run))
    assert group["epsilon_spent"] == pytest.approx(strict.epsilon)
    page = Path("tuesday/report.html").read_text()
    for words in ("Accounts", "spent in other runs", "spent here", "together", "left", strict.parts[1].run):
        assert words in page


def test_runs_and_plans_anew_in_fixed_accounts_say_what_they_rest_on(run: Run, tmp_path: Path) -> None:
    sentence = "this holds only if the plan depends on no result that was released before."
    settings = config(tmp_path)
    assert run("ledger", "budgets", "import", lifetimes(tmp_path, 5.0), "--account", "fixed").code == 0
    said = [run("run", settings, "--out", name) for name in ("monday", "tuesday")]
    assert [(one.code, sentence in " ".join(f"{one.err} {one.out}".split())) for one in said] == [(0, False), (0, True)]
    with begun(f"sqlite:///{tmp_path}/other.db") as (_, books):
        spend(books, 1)
    Path("monday").rename("sunday")  # else the folder would be meant
    planned = run("ledger", "replan", "monday", "--ledger", "other.db")
    assert (planned.code, sentence in " ".join(planned.err.split())) == (0, True)


@pytest.mark.slow
def test_a_run_keeps_its_own_ledger_where_none_is_named(run: Run, tmp_path: Path) -> None:
    assert run("run", plain_config(tmp_path), "--out", "alone").code == 0
    name = load_config("alone/config.toml").ledger.run
    shown = run("ledger", "show", "--ledger", "alone", "--run", name, "--json")
    groups = json.loads(shown.out)["groups"]
    assert groups["strict"]["epsilon_spent"] == pytest.approx(10.0, rel=1e-6)
    assert groups["open"]["runs"] == [{"run": name, "group": "open", "rounds": 6}]
    assert run("ledger", "verify", "--ledger", "alone").code == 0
    assert not (tmp_path / "ledger.db").exists()
    assert run("run", plain_config(tmp_path, "fedavg"), "--out", "open").code == 0
    assert not (tmp_path / "open" / "private" / "ledger.db").exists()  # without noise there is nothing to keep


def test_clients_are_called_as_in_their_file(run: Run, tmp_path: Path) -> None:
    names = [f"Zoë {i}, ward «{i % 3}»" for i in range(12)]
    with Path("budgets.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("client", "epsilon"), *((n, 5 + i % 4) for i, n in enumerate(names))])
    settings = config(tmp_path)
    kept = settings.read_text().split("[[privacy.groups]]")[0] + '[ledger]\nurl = "sqlite:///ledger.db"\n'
    settings.write_text(kept.replace("[privacy]", '[privacy]\nbudgets_file = "budgets.csv"\nbudget_levels = 2'))
    assert run("run", settings, "--out", "r").code == 0
    shown = json.loads(run("ledger", "show", "--client", names[7], "--json").out)
    assert shown["epsilon"] == 8.0  # its own, not its group's
    assert 0.0 < shown["epsilon_spent"] <= 8.0
    assert run("ledger", "export", "accounts.csv", "--accounts").code == 0
    with Path("accounts.csv").open(newline="") as file:
        exported = {row["client"]: row for row in csv.DictReader(file)}
    assert set(exported) == set(names)
    assert float(exported[names[7]]["epsilon_spent"]) == pytest.approx(shown["epsilon_spent"])


def test_a_checkpoint_that_was_lost_is_paid_for_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = load_config(config(tmp_path))
    kept = tmp_path / "kept.safetensors"

    def interrupt(report: RoundReport) -> None:
        if report.round == 2:
            shutil.copy("run/checkpoint.safetensors", kept)
        if report.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        start_run(settings, Path("run"), callbacks=[EachRound(interrupt)])
    caplog.clear()
    shutil.copy(kept, "run/checkpoint.safetensors")
    with pytest.raises(StoppedError, match="nestegg ledger replan run"):
        resume_run(Path("run"))
    assert caplog.messages == [
        "The released result of rounds 3 to 4 is lost: it stays paid for, and is to be paid for again."
    ]
    with Ledger("sqlite:///ledger.db") as ledger:
        ledger.books(str(load_config("run/config.toml").ledger.run)).replan()
    resume_run(Path("run"))
    with Ledger("sqlite:///ledger.db") as ledger:
        ledger.verify()
        account = ledger.account("client-1")
        assert account.parts[0].rounds == 8
        assert account.epsilon == pytest.approx(10.0, rel=1e-3)
        assert [c["state"] for c in ledger.charges() if c["group"] == "open"].count("lost") == 2
    assert len(Path("run/rounds.jsonl").read_text().splitlines()) == 6


def test_a_ledger_that_was_lost_is_filled_from_the_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = load_config(config(tmp_path))

    def interrupt(report: RoundReport) -> None:
        if report.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        start_run(settings, Path("run"), callbacks=[EachRound(interrupt)])
    caplog.clear()
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    resume_run(Path("run"))
    assert [sentence.split(" is in")[0] for sentence in caplog.messages] == ["Round 1", "Round 2", "Round 3"]
    with Ledger("sqlite:///ledger.db") as ledger:
        assert ledger.account("client-1").epsilon == pytest.approx(10.0, rel=1e-6)


def test_a_copy_of_a_run_cannot_release_what_the_original_has(tmp_path: Path) -> None:
    settings = load_config(config(tmp_path))

    def interrupt(report: RoundReport) -> None:
        if report.round == 3:
            shutil.copytree("run", "copy")
            raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        start_run(settings, Path("run"), callbacks=[EachRound(interrupt)])
    resume_run(Path("run"))
    with pytest.raises(InputError, match="is complete; this checkpoint of round 3 is an older one"):
        resume_run(Path("copy"))


@pytest.mark.slow
def test_planning_anew_while_a_run_goes_on_stops_it(run: Run, tmp_path: Path) -> None:
    """What is charged is what was used: the next round waits for the new plan."""

    def replan(report: RoundReport) -> None:
        if report.round == 2:
            with Ledger("sqlite:///ledger.db") as ledger:
                ledger.set_budgets({"client-1": Budget(6.0)}, reason="her wish")
                ledger.books(str(load_config("run/config.toml").ledger.run)).replan()

    with pytest.raises(StoppedError, match="was planned anew meanwhile"):
        start_run(load_config(config(tmp_path)), Path("run"), callbacks=[EachRound(replan)])
    resumed = run("run", "--resume", "run")
    assert resumed.code == 0
    assert "The run goes on by the plan" in resumed.err
    charged = [(c["sampling_rate"], c["noise_multiplier"]) for c in _charges() if c["group"] == "strict"]
    row = load_plan("run/plan.json").groups[0]
    assert charged == list(zip(row.sampling_rate, row.noise_multiplier, strict=True))
    assert charged[2] != charged[1]


def _charges() -> list[dict[str, Any]]:
    with Ledger("sqlite:///ledger.db") as ledger:
        ledger.verify()
        return list(ledger.charges())


def test_nothing_is_left_of_a_result_that_was_never_released(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def interrupt(report: RoundReport) -> None:
        if report.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        start_run(load_config(config(tmp_path)), Path("run"), callbacks=[EachRound(interrupt)])
    caplog.clear()
    torn = Path("run/.checkpoint.safetensors.4711")  # killed before its rename
    shutil.copy("run/checkpoint.safetensors", torn)
    Path("run/rounds.jsonl").unlink()  # it is only a log
    resume_run(Path("run"))
    assert not torn.exists()
    assert caplog.messages == ["rounds.jsonl has lost 1 of its lines: the report will have gaps."]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["what?run", "p%41x#", "[bold]", "Zoë ⚖"])
def test_folders_may_have_any_name(name: str, run: Run, tmp_path: Path) -> None:
    assert run("run", plain_config(tmp_path), "--out", name).code == 0
    assert (tmp_path / name / "private" / "ledger.db").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"config.toml", name}
    assert run("ledger", "verify", "--ledger", name).code == 0
    assert run("ledger", "backup", f"{name}.db", "--ledger", name).code == 0
    assert run("ledger", "show", "--client", "client-1", "--ledger", f"{name}.db").code == 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_one_process_at_a_time(run: Run, tmp_path: Path) -> None:
    assert run("run", config(tmp_path), "--out", "r").code == 0
    Path("r/report.html").unlink()  # there is something left to do
    with RunFolder(Path("r")).locked():
        refused = run("run", "--resume", "r")
    assert refused.code == 2
    assert "r is in use: another process is at work on this run" in refused.err


def test_configurations_whose_ledger_cannot_be_used(run: Run, tmp_path: Path) -> None:
    for url, message in (
        ("sqlite:////nowhere/at/all/ledger.db", "there is no folder /nowhere/at/all"),
        ("postgresql://127.0.0.1:1/x", "cannot be used: connection"),
        ("ledger.db", "must look like sqlite:///ledger.db"),
    ):
        path = config(tmp_path)
        path.write_text(path.read_text().replace("sqlite:///ledger.db", url))
        refused = run("run", path, "--out", "r")
        assert refused.code == 2
        assert message in refused.err.replace("\n", " ")
        assert not Path("r").exists()
    refused = run("run", config(tmp_path, "fedavg"), "--out", "r")
    assert refused.code == 2
    assert "'fedavg' adds no noise" in refused.err
    assert not Path("r").exists()


@pytest.mark.slow
def test_compare_uses_the_ledger_too(run: Run, tmp_path: Path) -> None:
    run("ledger", "budgets", "import", lifetimes(tmp_path, factor=5.0))
    refused = run("compare", config(tmp_path), "--methods", "exact,fedavg", "--seeds", 1, "--out", "c")
    assert "'fedavg' adds no noise" in refused.err
    assert not Path("c").exists()
    done = run("compare", config(tmp_path), "--methods", "idp-fedavg,exact", "--seeds", 1, "--out", "c")
    assert done.code == 0
    with Ledger("sqlite:///ledger.db") as ledger:
        assert [part.rounds for part in ledger.account("client-1").parts] == [6, 6]
