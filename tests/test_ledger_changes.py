"""What an officer can read: who changed which budget and why, who withdrew, which run is not for release, and when."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from nestegg import Budget, InputError
from nestegg.config import load_config
from nestegg.description import of_config
from nestegg.ledger import Ledger
from nestegg.release import NOT_FOR_RELEASE

from .conftest import Run
from .test_ledger import NAMES, begun, spend, two_groups, upto
from .test_ledger_runs import config
from .test_runs import config as plain_config


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NESTEGG_AUTHOR", "the officer")


def test_a_change_carries_its_reason_and_its_author(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 2)
        before = ledger.verify()[0]
        for reason, message in ((None, "'ada' has a budget; another one needs a reason"), (" ", "reason = ' '")):
            with pytest.raises(InputError, match=message):
                ledger.set_budgets({"ada": Budget(9.0)}, reason=reason)
        assert ledger.verify()[0] == before
        ledger.set_budgets({"ada": Budget(9.0)}, reason="a second study", author="Grace")
        ledger.set_budgets({"ada": Budget(9.0)})  # the same again is no change
        first, second = ledger.changes("ada")
        assert (first.epsilon, first.epsilon_before, first.reason, first.author) == (
            *(6.0, None),
            *("first budget", "the officer"),
        )
        assert (second.epsilon, second.epsilon_before, second.reason) == (9.0, 6.0, "a second study")
        assert (second.author, second.account, len(second.day)) == ("Grace", "fixed", len("2026-11-17"))
        assert ledger.latest_changes() == [second]
        assert [change.client for change in ledger.changes()] == [*NAMES, "ada"]
        ledger.verify()


def test_another_delta_is_not_silently_a_smaller_spending(url: str) -> None:
    with begun(url) as (ledger, books):
        ledger.set_budgets({"bob": Budget(6.0, 1e-6)}, reason="before anything was spent")
        spend(books, 3)
        spent = ledger.account("ada").epsilon
        with pytest.raises(
            InputError, match=rf"delta = 0\.001 would replace 1e-05.*= {spent:.6g}, and not.*--change-d"
        ):
            ledger.set_budgets({"ada": Budget(6.0, 1e-3)}, reason="why not")
        ledger.set_budgets({"ada": Budget(6.0, 1e-3)}, reason="the law says so", change_delta=True)
        ada = ledger.account("ada")
        assert ada.epsilon < spent
        assert ada.epsilon_at(1e-5) == pytest.approx(spent, rel=1e-12)


def test_both_spendings_are_shown(run: Run, tmp_path: Path) -> None:
    with begun(f"sqlite:///{tmp_path}/ledger.db") as (ledger, books):
        spend(books, 3)
        spent = ledger.account("ada").epsilon
    changed = run(
        "ledger", "budgets", "set", "ada", "--epsilon", 6, "--delta", 1e-3, "--reason", "law", "--change-delta"
    )
    assert changed.code == 0
    shown = json.loads(run("ledger", "show", "--client", "ada", "--json").out)
    assert shown["epsilon_spent_at"] == {"1e-05": pytest.approx(spent, rel=1e-9)}
    assert shown["epsilon_spent"] < spent
    for words in (("show", "--client", "ada"), ("show",)):
        out = run("ledger", *words).out.replace("\n", " ")
        assert f"{spent:.3f}"[:4] in out
        for word in ("law", "the officer", "0.001"):
            assert word in out


def test_an_unknown_name_is_refused_unless_it_is_announced(run: Run, url: str) -> None:
    with Ledger(url) as ledger:
        ledger.set_budgets({"client-1": Budget(5.0), "client-2": Budget(5.0)})  # an empty ledger takes everybody
        with pytest.raises(
            InputError, match=r"knows no client 'cleint-2'\. Did you mean 'client-2'\? A new client must"
        ):
            ledger.set_budgets({"client-1": Budget(6.0), "cleint-2": Budget(5.0)}, reason="more")
        assert [change.client for change in ledger.changes()] == ["client-1", "client-2"]
        with pytest.raises(InputError, match=r"knows no client 'cleint-1'\. Did you mean 'client-1'\?"):
            ledger.account("cleint-1")
        ledger.set_budgets({"eve": Budget(5.0)}, new=True)
        assert ledger.account("eve").budget == Budget(5.0)


def test_a_name_is_the_same_in_every_spelling_of_unicode(url: str) -> None:
    composed, apart = unicodedata.normalize("NFC", "Zoë"), unicodedata.normalize("NFD", "Zoë")
    assert composed != apart
    with Ledger(url) as ledger:
        ledger.set_budgets({apart: Budget(12.0), "bob": Budget(12.0), "cleo": Budget(12.0)})
        ledger.set_budgets({composed: Budget(13.0)}, reason="no second account")
        for name in (composed, apart):
            assert (ledger.account(name).example, ledger.account(name).budget.epsilon) == (composed, 13.0)
        with pytest.raises(InputError, match="3 different clients"):
            ledger.begin("monday", two_groups(), [apart, composed, "bob", "cleo"])
        spend(ledger.begin("monday", two_groups(), [apart, "bob", "cleo", "eve"], unknown=[Budget(12.0)] * 4), 1)
        assert ledger.account(composed).parts[0].rounds == 1
        with pytest.raises(InputError, match="the same client twice"):
            ledger.set_budgets({composed: Budget(14.0), apart: Budget(15.0)}, reason="which?")
        ledger.withdraw(apart, "enough")
        assert ledger.withdrawn() == {composed}
        ledger.verify()


def test_a_client_withdraws_and_its_runs_go_on_without_it(url: str) -> None:
    with begun(url) as (ledger, books):
        spend(books, 2)
        books.reserve(3)
        assert books.withdrawn() == frozenset()
        ledger.withdraw("cleo", "moved away", author="Grace")  # the round that is reserved may have had her data
        assert books.withdrawn() == {2}
        books.release(3, books.reserve(3), "result 3")
        spent = ledger.account("cleo").epsilon
        with pytest.raises(InputError, match="has reserved no round: who has withdrawn is asked after that"):
            books.withdrawn()  # asked before, a withdrawal in between would be sampled and not charged
        for round_ in (4, 5):
            claim = books.reserve(round_)
            assert books.withdrawn() == ledger.books("monday").withdrawn() == {2}
            books.release(round_, claim, f"result {round_}")
        cleo, dan = ledger.account("cleo"), ledger.account("dan")
        assert (cleo.parts[0].rounds, dan.parts[0].rounds) == (3, 5)
        assert (cleo.withdrawn, dan.withdrawn, cleo.epsilon) == (True, False, spent)
        by_peers = {account.example: account for account in ledger.accounts()}
        assert (by_peers["cleo"].epsilon, by_peers["cleo"].withdrawn) == (pytest.approx(spent, rel=1e-12), True)
        assert dict(ledger.clients())["cleo"].charges == by_peers["cleo"].charges
        with pytest.raises(InputError, match=r"'cleo' withdrew on \d{4}-\d\d-\d\d: it is in no new run"):
            ledger.begin("tuesday", two_groups(), NAMES)
        changes: tuple[Callable[[], object], ...] = (
            lambda: ledger.withdraw("cleo", "again"),
            lambda: ledger.set_budgets({"cleo": Budget(99.0)}, reason="come back"),
        )
        for change in changes:
            with pytest.raises(InputError, match="'cleo' has withdrawn"):
                change()
        with pytest.raises(InputError, match="knows no client 'claudia'"):
            ledger.withdraw("claudia", "who?")
        last = list(ledger.changes("cleo"))[-1]
        assert (last.kind, last.reason, last.author, last.epsilon) == ("withdrawal", "moved away", "Grace", None)
        ledger.verify()


def test_who_has_withdrawn_is_no_reason_to_refuse_or_to_plan_more_noise(url: str) -> None:
    """A member without budget stops a run; once it has withdrawn, the others go on as planned."""
    with begun(url, budgets={"ada": Budget(4.0), "bob": Budget(6.0), "cleo": Budget(12.0), "dan": Budget(12.0)}) as (
        ledger,
        books,
    ):
        with pytest.raises(InputError, match="'ada' of group 'strict'"):
            books.check_rest()
        ledger.withdraw("ada", "enough")
        books.check_rest()
        spend(books, 5)
        ledger.withdraw("bob", "enough")  # now the group is empty
        assert books.accounts()["strict"].example in ("ada", "bob")
        spend(books, 1)
        ledger.withdraw("cleo", "all")
        ledger.withdraw("dan", "all")
        assert {name: account.withdrawn for name, account in books.accounts().items()} == {"strict": True, "open": True}
        ledger.verify()


def test_rounds_that_a_ledger_had_forgotten_are_charged_to_who_has_withdrawn_since(tmp_path: Path) -> None:
    """They may have had its data: the checkpoint that holds them is older than the withdrawal."""
    url, backup = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "backup.db"
    with begun(url) as (ledger, books):
        spend(books, 1)
        ledger.backup(backup)
        spend(books, 3)
        spent = ledger.account("ada").epsilon
    with Ledger(backup) as ledger:
        ledger.withdraw("ada", "enough")
        ledger.books("monday").reconcile(upto(4))
        assert ledger.account("ada").parts[0].rounds == 4
        assert ledger.account("ada").epsilon == pytest.approx(spent, rel=1e-12)
        assert {account.example: account.parts[0].rounds for account in ledger.accounts()}["ada"] == 4
        ledger.verify()


@pytest.mark.parametrize("what", ["UPDATE withdrawals SET client = 2", "DELETE FROM withdrawals"])
def test_a_withdrawal_cannot_be_undone_unnoticed(what: str, url: str) -> None:
    from .test_ledger_access import tamper

    with begun(url) as (ledger, books):
        spend(books, 1)
        ledger.withdraw("ada", "enough")
    tamper(url, what)
    with Ledger(url) as ledger, pytest.raises(RuntimeError, match=r"\(withdraw\) is not what was written"):
        ledger.verify()


def test_commands_say_who_changed_what_and_who_withdrew(run: Run) -> None:
    Path("life.csv").write_text("client,epsilon\nada,5\nbob,5\n")
    assert "by the rule renyi" in run("ledger", "budgets", "import", "life.csv").out
    refused = run("ledger", "budgets", "set", "ada", "--epsilon", 7)
    assert (refused.code, "another one needs a reason" in refused.err) == (2, True)
    raised = run("ledger", "budgets", "set", "ada", "--epsilon", 7, "--reason", "second study", "--author", "Grace")
    assert "plans may depend on earlier results (rule renyi: Rényi order" in raised.out
    assert run("ledger", "budgets", "set", "eve", "--epsilon", 7).code == 2
    assert run("ledger", "budgets", "set", "eve", "--epsilon", 7, "--new", "--account", "fixed").code == 0
    assert run("ledger", "withdraw", "bob").code == 2  # not without a reason
    gone = run("ledger", "withdraw", "bob", "--reason", "moved away")
    assert (gone.code, "bob has withdrawn" in gone.out) == (0, True)
    for words in (("show",), ("show", "--client", "ada")):
        out = " ".join(run("ledger", *words).out.split())
        assert "5 → 7" in out
        assert "Grace second study" in out
    assert "withdrawn" in run("ledger", "show").out
    assert "bob" in run("ledger", "show").out
    assert "3 clients (1 withdrawn), nobody is over budget" in run("ledger", "verify").out
    assert run("ledger", "export", "changes.csv", "--budgets").code == 0
    with Path("changes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["client"], row["kind"], row["reason"]) for row in rows] == [
        ("ada", "budget", "first budget"),
        ("bob", "budget", "first budget"),
        ("ada", "budget", "second study"),
        ("eve", "budget", "first budget"),
        ("bob", "withdrawal", "moved away"),
    ]
    assert (rows[2]["epsilon_before"], rows[2]["author"], rows[3]["account"]) == ("5.0", "Grace", "fixed")
    assert run("ledger", "export", "accounts.jsonl", "--accounts").code == 0
    accounts = [json.loads(line) for line in Path("accounts.jsonl").read_text().splitlines()]
    assert [(one["account"], one["withdrawn"]) for one in accounts] == [
        ("renyi", False),
        ("renyi", True),
        ("fixed", False),
    ]
    assert run("ledger", "export", "x.csv", "--accounts", "--budgets").code == 2


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


def test_only_days_are_shown_and_exported(run: Run, tmp_path: Path) -> None:
    """How long a round took tells of its cohort's size, which is a secret; the file itself has the time."""
    with begun(f"sqlite:///{tmp_path}/ledger.db") as (ledger, books):
        spend(books, 2)
        ledger.set_budgets({"ada": Budget(9.0)}, reason="more")
        times = {state.at[10:] for state in ledger.history().runs.values()}
        times |= {paid.at[10:] for paid in ledger.history().rounds.values()}
    assert all(len(time) > 10 for time in times)
    said = [run("ledger", "show", *words).out for words in ((), ("--json",), ("--client", "ada"), ("--run", "monday"))]
    for words in ((), ("--accounts",), ("--budgets",)):
        run("ledger", "export", "out.jsonl", *words)
        said.append(Path("out.jsonl").read_text())
    for text in said:
        assert not any(time[:9] in text for time in times)


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
