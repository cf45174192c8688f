"""Privacy statements: what they say, where their numbers come from, and that they notice a run that changed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nestegg import Budget, Group, InputError, Ledger, VerificationError, load_plan, plan
from nestegg.accounting import Charge, compose
from nestegg.audit.folder import folder_findings
from nestegg.configuration.config import load_config
from nestegg.planning import epsilon_by_pld
from nestegg.planning.accounts import row_accountant
from nestegg.report.statement import Statement, parse_statement
from nestegg.report.statement_page import statement_page
from nestegg.report.statement_pdf import statement_pdf
from nestegg.report.statement_words import UNKNOWN
from nestegg.runs import start_run
from nestegg.runs.folder import RunFolder
from nestegg.runs.signing import check_statement, sign_file
from nestegg.runs.statement import digests, make_statement, spent_so_far
from nestegg.runs.statement_accounts import accounts_of
from nestegg.runs.statement_files import write_statement
from tests.conftest import Run
from tests.runs.test_runs import config

LEDGER = """
[ledger]
url = "sqlite:///ledger.db"
"""
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")


def started(folder: Path, name: str, *, reproducible: bool = False) -> Path:
    """A run of two rounds that is paid by the ledger beside it."""
    file = config(folder, key="reproducible", line=f"reproducible = {str(reproducible).lower()}")
    file.write_text(file.read_text().replace("rounds = 6", "rounds = 2") + LEDGER)
    start_run(load_config(file), folder / name)
    return folder / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the same clients on one ledger, one of them not for release; a budget raised, a client gone."""
    folder = tmp_path_factory.mktemp("statements")
    with Ledger(folder / "ledger.db") as ledger:
        ledger.set_budgets({f"client-{i}": Budget(60.0) for i in range(1, 13)})
    started(folder, "monday")
    with Ledger(folder / "ledger.db") as ledger:
        raised = {f"client-{i}": Budget(80.0) for i in (1, 2)}
        ledger.set_budgets(raised, reason="a second study", author="Grace")
    started(folder, "tuesday", reproducible=True)
    with Ledger(folder / "ledger.db") as ledger:
        ledger.withdraw("client-12", "moved to Lisbon", author="Grace")
    return folder


@pytest.fixture(scope="module")
def monday(made: Path) -> Statement:
    return make_statement(made / "monday")


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of everything, to be changed; its runs name the ledger of the original."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two keys, of which the first is on the list of signers."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("grace", "mallory"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (folder / "signers").write_text(f"grace@example.org {(folder / 'grace.pub').read_text()}")
    return folder


def test_numbers_are_those_of_independent_accountants(made: Path, monday: Statement) -> None:
    plan = load_plan(made / "monday" / "plan.json")
    for group, row in zip(monday.groups, plan.groups, strict=True):
        assert group["epsilon"] == pytest.approx(row.epsilon_spent[-1], rel=1e-9)
        assert group["epsilon"] <= group["budget"] == row.group.budget.epsilon
        assert group["epsilon_pld"] == pytest.approx(epsilon_by_pld(row), rel=1e-9)
        assert 0.5 < group["right_at_most"] < 1.0
        assert group["epsilon_sampled"] > group["epsilon_pld"]
        assert group["epsilon_colluding"]["1"] > group["epsilon"]
    assert monday.promise["unit"] == "one client's whole data"
    assert [one["judge"] for one in monday.plan["verdicts"]] == ["PLD"] * 2
    assert monday.plan["digest"] == plan.digest


def test_other_runs_changes_and_withdrawals_are_told_without_names(made: Path, monday: Statement) -> None:
    (other,) = monday.other_runs
    assert other["run"].startswith("tuesday-")
    assert (other["shared_clients"], other["rounds"], other["for_release"]) == (12, 2, False)
    (change,) = monday.changes
    assert (change["clients"], change["epsilon_before"], change["epsilon"]) == (2, 60.0, 80.0)
    assert (change["author"], change["reason"]) == ("Grace", "a second study")
    assert [one["clients"] for one in monday.withdrawals] == [1]
    with Ledger(made / "ledger.db", read_only=True) as ledger:
        assert monday.ledger is not None
        assert monday.ledger["head"] == ledger.verify()[0].hash
        least = ledger.books(monday.run["name"]).accounts()
        for account in monday.ledger["accounts"]:
            assert account["epsilon_spent"] == pytest.approx(least[account["group"]].epsilon)
            assert account["epsilon_here"] < account["epsilon_spent"] <= account["epsilon"]
    for group, account in zip(monday.groups, monday.ledger["accounts"], strict=True):
        assert group["right_at_most"] < account["right_at_most"] < 1.0  # two runs tell more than one
    page = statement_page(monday)
    for text in (monday.text, page):
        assert "client-1" not in text
        assert "Lisbon" not in text
        assert not re.search(r"\d\d:\d\d", text)  # days, and no times
    assert "no audit was made" in page
    assert "In words, about this run alone" in page
    assert "a second study" in page


def test_what_is_not_for_release_says_so_in_every_file_and_the_audit_finds_all_in_order(place: Path) -> None:
    tuesday = make_statement(place / "tuesday")
    write_statement(tuesday, place / "tuesday")
    write_statement(make_statement(place / "monday"), place / "monday")
    for suffix in ("json", "html", "pdf"):
        file = f"statement.{suffix}"
        assert b"follows from the seed" in (place / "tuesday" / file).read_bytes()
        assert b"follows from the seed" not in (place / "monday" / file).read_bytes()
        assert (place / "monday" / file).stat().st_mtime % 86_400 == 0.0
    assert "NOT FOR RELEASE" in statement_page(tuesday)
    for run in ("monday", "tuesday"):
        assert not [one.says for one in folder_findings(place / run) if one.refutes]


def test_a_page_is_the_same_bytes_again_and_text_is_never_markup(monday: Statement) -> None:
    hostile = "<script>alert(1)</script> #panic() \\ $x$ *b* @ref"
    odd = replace(monday, changes=[{**monday.changes[0], "reason": hostile}])
    assert statement_pdf(odd) == statement_pdf(odd)
    assert statement_pdf(odd).startswith(b"%PDF-")
    assert monday.digest.encode() in statement_pdf(monday)
    assert "<script>" not in statement_page(odd)
    assert monday.digest in statement_page(monday)
    assert parse_statement(monday.text, "here") == monday


def test_a_lost_round_stays_paid_and_counts(made: Path) -> None:
    plan = load_plan(made / "monday" / "plan.json")
    row = plan.groups[0]
    pairs = list(zip(row.sampling_rate, row.noise_multiplier, strict=True))
    paid = tuple(Charge(*pair) for pair in (*pairs, pairs[-1]))
    now = spent_so_far(plan, 2, {row.group.name: paid}).groups
    by_hand = float(compose(row_accountant(plan, row), paid).epsilon(plan.delta)[0])
    assert now[0].epsilon_spent[-1] == pytest.approx(by_hand, rel=1e-9)
    assert by_hand > 1.05 * row.epsilon_spent[-1]
    assert epsilon_by_pld(now[0]) > 1.05 * epsilon_by_pld(row)
    assert now[1].epsilon_spent == plan.groups[1].epsilon_spent


def test_what_was_spent_before_a_run_counts_besides_a_round_that_was_lost(made: Path) -> None:
    plan = load_plan(made / "monday" / "plan.json")
    row = plan.groups[0]
    pairs = list(zip(row.sampling_rate, row.noise_multiplier, strict=True))
    lost = Charge(*pairs[-1])  # by chance the same release as one before the run
    first = replace(row, group=replace(row.group, already_spent=(lost,)))
    began = replace(plan, groups=(first, *plan.groups[1:]))
    later = replace(row, group=replace(row.group, already_spent=(lost._replace(rounds=2),)))
    anew = replace(plan, groups=(later, *plan.groups[1:]))  # planned anew after the loss
    paid = {row.group.name: (*(Charge(*pair) for pair in pairs), lost)}
    for now in (spent_so_far(began, 2, paid), spent_so_far(anew, 2, paid, began)):
        charged = now.groups[0].charges()
        assert {(q, sigma): n for q, sigma, n in charged}[pairs[-1]] == 2 + pairs.count(pairs[-1])


def test_a_ledger_that_is_missing_is_said_and_one_that_disagrees_refused(place: Path) -> None:
    alone = place / "monday"
    text = (alone / "config.toml").read_text()
    (alone / "config.toml").write_text(re.sub(r'url = ".*"', f'url = "sqlite:///{place}/gone.db"', text))
    found = make_statement(alone)
    assert found.ledger is None
    assert UNKNOWN in found.warnings
    assert "No ledger could be read" in statement_page(found)
    with pytest.raises(InputError, match=r"gone\.db does not exist"):
        make_statement(alone, ledger=place / "gone.db")
    with Ledger(place / "another.db") as ledger:
        ledger.set_budgets({"ada": Budget(1.0)})
    with pytest.raises(InputError, match="knows no run"):
        make_statement(alone, ledger=place / "another.db")
    shutil.copy(place / "tuesday" / "checkpoint.safetensors", alone / "checkpoint.safetensors")
    with pytest.raises(InputError, match="and its ledger disagree"):
        make_statement(alone, ledger=place / "ledger.db")
    with RunFolder(alone).locked(), pytest.raises(InputError, match="is at work, between two rounds"):
        make_statement(alone, ledger=place / "ledger.db")


def test_a_round_that_ends_meanwhile_is_noticed(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stated is read before the files' digests are taken, and judging takes seconds."""
    later = digests(made / "monday") | {"checkpoint.safetensors": "of the next round"}
    monkeypatch.setattr("nestegg.runs.statement.digests", lambda folder: later)
    with pytest.raises(InputError, match="has released a round while its statement was made"):
        make_statement(made / "monday")


def test_a_checkpoint_of_something_else_is_one_sentence(place: Path) -> None:
    RunFolder(place / "monday").save_checkpoint({}, {"round": 1})
    with pytest.raises(InputError, match="does not say which rounds were before it"):
        make_statement(place / "monday")


def test_what_another_run_released_and_lost_was_released(tmp_path: Path) -> None:
    small = plan([Group("all", 2, Budget(2.0))], 3)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budgets({"ada": Budget(20.0), "bob": Budget(20.0)})
        first, second = (ledger.begin(name, small, ["ada", "bob"]) for name in ("first", "second"))
        first.release(1, first.reserve(1), "result")
        first.reconcile([])  # its folder was restored from a copy
        second.release(1, second.reserve(1), "another")
        (other,) = accounts_of(ledger, "second", lies_here=False).other_runs
    assert (other["run"], other["rounds"]) == ("first", 1)


@pytest.mark.parametrize("method", ["fedavg", "optimal"])
def test_a_run_without_noise_promises_nothing_and_one_with_its_own_ledger_says_so(method: str, tmp_path: Path) -> None:
    file = config(tmp_path, method)
    file.write_text(file.read_text().replace("rounds = 6", "rounds = 2"))
    start_run(load_config(file), tmp_path / "run")
    page = statement_page(found := make_statement(tmp_path / "run"))
    if method == "fedavg":
        assert "nothing is promised to anybody" in page
        assert found.groups == []
    else:
        assert "knows of no other run" in page
        assert "Everybody is in every round" in page
        assert found.ledger is not None
        assert found.ledger["own"]


def test_a_folder_that_is_no_run_or_has_released_nothing_is_one_sentence(run: Run, place: Path) -> None:
    assert "is not a run" in run("statement", place.parent).err
    (place / "monday" / "checkpoint.safetensors").unlink()
    refused = run("statement", place / "monday")
    assert (refused.code, "has released no round yet" in refused.err) == (2, True)
    for wrong in ((), ("--check", "x.json"), (place / "monday", "--signers", "x")):
        assert run("statement", *wrong).code == 2


@needs_ssh
def test_signed_and_checked_from_the_command_line(run: Run, place: Path, keys: Path) -> None:
    folder, signers = place / "monday", keys / "signers"
    done = run("statement", folder, "--sign", keys / "grace")
    assert done.code == 0, done.err
    assert "statement.json.sig" in done.out
    file = folder / "statement.json"
    checked = run("statement", "--check", file, "--signers", signers)
    assert checked.code == 0, checked.err
    assert "signed by grace@example.org, and the run in" in " ".join(checked.out.split())
    again = run("statement", folder, "--sign", keys / "mallory")
    assert (again.code, "is signed, and is not replaced" in again.err) == (2, True)
    audit = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**audit, "seed": 7}))
    changed = run("statement", "--check", file, "--signers", signers)
    assert changed.code == 1
    assert "the run changed after grace@example.org signed: summary.json is another file" in changed.err


@needs_ssh
def test_every_way_in_which_a_statement_may_not_hold(made: Path, monday: Statement, tmp_path: Path, keys: Path) -> None:
    file, signers = tmp_path / "statement.json", keys / "signers"

    def signed(statement: Statement, key: str = "grace") -> None:
        file.write_text(statement.text)
        sign_file(file, keys / key)

    signed(monday)
    assert check_statement(file, signers, folder=made / "monday").remarks == []
    assert "was not checked" in check_statement(file, signers).remarks[0]
    with pytest.raises(VerificationError, match="is of the run monday"):
        check_statement(file, signers, folder=made / "tuesday")
    file.write_text(file.read_text().replace("Grace", "Grice"))
    with pytest.raises(VerificationError, match=r"is not what grace@example\.org signed"):
        check_statement(file, signers)
    signed(monday, "mallory")
    with pytest.raises(VerificationError, match="of no key in"):
        check_statement(file, signers)
    forged: dict[str, Any] = {
        "groups": [{**monday.groups[0], "epsilon": 1.0}, *monday.groups[1:]],
        "other_runs": [],
        "audit": {"refuted": False, "attacks": 1_000_000},
        "adaptivity": [],
        "warnings": ["All is well."],
        "trusted": ["Nobody has to be trusted."],
        "not_covered": [],
    }
    for part, content in forged.items():
        signed(replace(monday, **{part: content}))
        with pytest.raises(VerificationError, match=f"under '{part}' does not follow"):
            check_statement(file, signers, folder=made / "monday")
    signed(replace(monday, trusted=["In other words."], versions={**monday.versions, "nestegg": "0.1"}))
    assert "in the words of another version" in check_statement(file, signers, folder=made / "monday").remarks[0]
    assert monday.ledger is not None
    signed(replace(monday, ledger={**monday.ledger, "head": "0" * 64}))
    with pytest.raises(VerificationError, match="the log was cut or rewritten"):
        check_statement(file, signers, folder=made / "monday")
    file.write_text("{}")
    sign_file(file, keys / "grace")
    with pytest.raises(InputError, match="is not a statement"):
        check_statement(file, signers)


@needs_ssh
def test_a_ledger_that_has_grown_is_no_change(place: Path, monday: Statement, tmp_path: Path, keys: Path) -> None:
    (tmp_path / "s.json").write_text(monday.text)
    sign_file(tmp_path / "s.json", keys / "grace")
    with Ledger(place / "ledger.db") as ledger:
        ledger.set_budgets({"client-3": Budget(90.0)}, reason="a third study", author="Grace")
    found = check_statement(tmp_path / "s.json", keys / "signers", folder=place / "monday", ledger=place / "ledger.db")
    assert found.remarks == ["The ledger has grown by an entry since; what was signed is still part of it."]


def test_what_is_missing_is_named(
    run: Run, place: Path, monday: Statement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").touch()
    (tmp_path / "s.json").write_text(monday.text)
    with pytest.raises(InputError, match=r"is not signed: .*s\.json\.sig does not exist"):
        check_statement(tmp_path / "s.json", tmp_path / "signers")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(InputError, match="signatures need ssh-keygen"):
        sign_file(tmp_path / "s.json", tmp_path / "key")
    monkeypatch.setitem(__import__("sys").modules, "typst", None)
    done = run("statement", place / "monday", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "No PDF was written: it needs the extra 'studio'" in " ".join(done.err.split())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["statement.html", "statement.json"]
    refused = run("statement", place / "monday", "--out", tmp_path / "out", "--pdf", tmp_path / "s.pdf")
    assert (refused.code, "a statement as PDF needs the extra 'studio'" in refused.err) == (2, True)


def test_a_run_that_was_refused_has_nothing_for_release(monday: Statement) -> None:
    (other,) = monday.other_runs
    cells = {rounds: statement_page(replace(monday, other_runs=[{**other, "rounds": rounds}])) for rounds in (0, 2)}
    assert "nothing released" in cells[0]
    assert "nothing released" not in cells[2]


def test_a_folder_in_the_place_of_a_statement_is_refused(run: Run, made: Path, tmp_path: Path) -> None:
    refused = run("statement", "--check", made / "monday", "--signers", tmp_path / "signers")
    assert (refused.code, "is a folder; give the statement.json in it" in " ".join(refused.err.split())) == (2, True)


def test_what_came_of_an_audit_is_said(monday: Statement) -> None:
    found = {
        "refuted": False,
        "refuted_by": [],
        "attacks": 32,
        "trials": 0,
        "interrupted": True,
        "not_attacked": ["Flower", "the run's own model"],
        "caveat": "Passing proves nothing.",
        "same_plan": True,
        "version": "1.0",
    }
    passed = "32 attacks by nestegg 1.0, none succeeded. It was interrupted. Not attacked: 2 parts"
    assert passed in statement_page(replace(monday, audit=found))
    refuted = replace(monday, audit={**found, "refuted": True, "refuted_by": ["noise (plan): too little"]})
    assert "it refutes the promise, by noise (plan): too little." in statement_page(refuted)
