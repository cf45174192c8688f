"""The commands of the ledger, and what they say of mistakes."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nestegg import Budget, InputError
from nestegg.accounting import RdpAccountant, compose
from nestegg.configuration.config import load_config
from nestegg.ledger import Ledger
from nestegg.planning.accounts import pld_accountant
from tests.conftest import Run
from tests.ledger.ledgers import LIFE, NAMES, begun, config, spend, two_groups


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


def test_show_verify_export_and_backup(run: Run, tmp_path: Path) -> None:
    run("run", config(tmp_path), "--out", "monday")
    name = load_config("monday/config.toml").ledger.run
    overview = run("ledger", "show").out
    for words in ("Runs", str(name), "6 of 6", "Accounts over all runs", "client-1", "client-7"):
        assert words in overview
    content = json.loads(run("ledger", "show", "--json").out)
    assert [account["clients"] for account in content["accounts"]] == [6, 6]
    assert content["runs"][0]["rounds_done"] == 6
    client = run("ledger", "show", "--client", "client-9").out
    for words in (
        "client-9: budget ε = 30 at δ = 1e-05",
        "open",
        "all together, by Rényi order",
        "by PLD",
        "left, by Rényi order",
    ):
        assert words in client
    assert "6 of 6 rounds released" in run("ledger", "show", "--run", name).out
    verified = run("ledger", "verify")
    head = verified.out.split()[-1]
    assert "nobody is over budget" in verified.out
    assert len(head) == 64
    noted = run("ledger", "verify", "--head", head)
    assert (noted.code, noted.out.splitlines()[-1]) == (0, f"The head that you gave is part of its log: {head}")
    cut = run("ledger", "verify", "--head", "0" * 64)
    assert cut.code == 1
    assert "no entry has the noted hash" in cut.err
    short = run("ledger", "verify", "--head", head[:12])
    assert (short.code, short.err.split("head", 1)[1]) == (
        2,
        f" = {head[:12]!r} must be all of its 64 digits and small letters.\n",
    )
    for file in ("charges.csv", "charges.jsonl"):
        assert run("ledger", "export", file).code == 0
    with Path("charges.csv").open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == 12
    lines = [json.loads(line) for line in Path("charges.jsonl").read_text().splitlines()]
    assert [float(row["noise_multiplier"]) for row in rows] == [line["noise_multiplier"] for line in lines]
    assert {row["state"] for row in rows} == {"released"}
    assert run("ledger", "backup", "copy.db").code == 0
    assert run("ledger", "verify", "--ledger", "copy.db").out.split()[-1] == head
    assert run("ledger", "budgets", "set", "client-1", "--epsilon", 50, "--reason", "more").code == 0
    assert json.loads(run("ledger", "show", "--client", "client-1", "--json").out)["epsilon"] == 50.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show",), "ledger.db does not exist"),
        (("verify", "--ledger", "nowhere.db"), "nowhere.db does not exist"),
        (("show", "--client", "a", "--run", "b"), "give either --client or --run"),
        (("budgets", "set", "a", "--epsilon", "-1"), "epsilon = -1.0 must be a finite number above 0"),
        (("budgets", "set", "a", "--epsilon", "1", "--delta", "2"), "delta = 2.0 must lie strictly between 0 and 1"),
        (("budgets", "import", "missing.csv"), "missing.csv cannot be read: No such file"),
        (("budgets", "import", "bad.csv"), "bad.csv line 3: epsilon = 'much' must be a finite number above 0"),
        (("budgets", "import", "delta.csv"), "delta.csv line 2: delta = 7.0 must lie strictly between 0 and 1"),
        (("export", "charges.xlsx"), "charges.xlsx must end in .csv or .jsonl"),
        (("replan", "nothing"), "ledger.db does not exist"),
        (("withdraw", "a", "--reason", "by letter"), "ledger.db does not exist"),
        (("budgets", "import", "good.csv", "--account", "gausian"), "account = 'gausian' must be one of fixed"),
        (("budgets", "set", " a", "--epsilon", "1"), "must be a name without spaces around it"),
        (("verify", "--ledger", "text.db"), "file is not a database"),
        (("show", "--ledger", "folder"), "folder"),
        (("show", "--ledger", "postgresql://a:b@c/d"), "must not hold a password"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], message: str, run: Run, tmp_path: Path) -> None:
    Path("bad.csv").write_text("client,epsilon\na,1\nb,much\n")
    Path("delta.csv").write_text("client,epsilon,delta\na,1,7\n")
    Path("good.csv").write_text("client,epsilon\na,1\n")
    Path("text.db").write_text("This is no database, but it is long enough to be looked at as if it were one.\n" * 9)
    Path("folder").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    result = run("ledger", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err.replace("\n", " ")
    assert "Traceback" not in result.err
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("withdraw", "ada", "--reason", "moved"),
        ("replan", "monday"),
        ("migrate",),
        ("budgets", "set", "ada", "--epsilon", 1, "--author", "a\nb"),
        ("budgets", "set", "ada", "--epsilon", 1, "--reason", "\a"),
        ("budgets", "import", "twice.csv"),
    ],
)
def test_what_is_refused_leaves_no_ledger_behind_at_a_url(arguments: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    Path("twice.csv").write_text("client,epsilon\n\u00e9,1\ne\u0301,1\n")
    refused = run("ledger", *arguments, "--ledger", f"sqlite:///{tmp_path}/slip.db")
    assert (refused.code, refused.out) == (2, "")
    assert not (tmp_path / "slip.db").exists()


def test_who_names_no_rule_hears_of_the_one_that_may_charge_less(run: Run) -> None:
    Path("good.csv").write_text("client,epsilon\na,1\n")
    assert "--account gaussian would charge less" in run("ledger", "budgets", "import", "good.csv").out
    asked = run("ledger", "budgets", "import", "good.csv", "--account", "renyi", "--ledger", "other.db")
    assert asked.out == "A client has its budget. Accounts are kept by the rule renyi.\n"


def test_a_bad_line_imports_nobody(run: Run) -> None:
    Path("bad.csv").write_text("client,epsilon\na,1\nb,much\n")
    run("ledger", "budgets", "set", "z", "--epsilon", 1)
    run("ledger", "budgets", "import", "bad.csv")
    with Ledger("sqlite:///ledger.db") as ledger, pytest.raises(InputError, match="knows no client 'a'"):
        ledger.account("a")


def test_names_that_are_none(run: Run) -> None:
    for name in ("", "  ", " ada", "a\nb", "\udcff"):
        refused = run("ledger", "budgets", "set", name, "--epsilon", 1)
        assert refused.code == 2
        assert "must be a name" in refused.err
    Path("list.jsonl").write_text('{"client": [1], "epsilon": 1}\n')
    assert "client = [1] must be a name" in run("ledger", "budgets", "import", "list.jsonl").err
    run("ledger", "budgets", "set", "[/nope]", "--epsilon", 1)
    assert "[/nope]: budget" in run("ledger", "show", "--client", "[/nope]").out
    assert run("ledger", "export", "none.csv").code == 0
    assert Path("none.csv").read_text().startswith("entry,day,run,round,group")


def test_what_is_no_ledger_stays_as_it_is(run: Run) -> None:
    with closing(sqlite3.connect("recipes.db")) as database:
        database.execute("CREATE TABLE recipes (id INTEGER)")
    before = Path("recipes.db").read_bytes()
    assert run("ledger", "budgets", "set", "ada", "--epsilon", 1, "--ledger", "recipes.db").code == 2
    assert Path("recipes.db").read_bytes() == before
    assert run("ledger", "budgets", "set", "ada", "--epsilon", -1).code == 2
    assert not Path("ledger.db").exists()
    assert "File name too long" in run("ledger", "show", "--ledger", "x" * 5000).err


def test_a_joined_export_has_every_client_in_every_run(run: Run, tmp_path: Path) -> None:
    with begun(f"sqlite:///{tmp_path}/ledger.db") as (ledger, books):
        spend(books, 3)
        ledger.withdraw("bob", "moved away")
        spend(books, 1)
        plan, name = books.plan, books.state.name
        charged = {one: ledger.account(one).charges for one in NAMES}
    for name_of_file in ("joined.csv", "joined.jsonl"):
        assert run("ledger", "export", name_of_file, "--joined").code == 0
    with Path("joined.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in Path("joined.jsonl").read_text().splitlines()]
    assert [row["client"] for row in rows] == [line["client"] for line in lines] == list(NAMES)
    assert {(row["run"], row["plan"], row["earlier_plans"]) for row in rows} == {(name, plan.digest, "")}
    assert [(row["group"], row["rounds"], row["withdrawn"]) for row in rows] == [
        ("strict", "4", "False"),
        ("strict", "3", "True"),
        ("open", "4", "False"),
        ("open", "4", "False"),
    ]
    for line in lines:
        spent = compose(RdpAccountant(plan.orders), charged[line["client"]]).epsilon(plan.delta)[0]
        assert line["epsilon"] == pytest.approx(spent, rel=1e-9)
        by_pld = compose(pld_accountant(charged[line["client"]]), charged[line["client"]]).epsilon(plan.delta)[0]
        assert line["epsilon_pld"] == pytest.approx(by_pld, rel=1e-3)
    assert run("ledger", "export", "x.csv", "--joined", "--budgets").code == 2


def test_a_run_is_found_by_its_folder_or_by_how_its_name_begins(run: Run, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budgets(LIFE, rule="fixed")
        for name in ("monday-2fca594c", "monday-2-0a1b2c3d", "tuesday-00000000", "tuesday-11111111"):
            ledger.begin(name, two_groups(), NAMES)
        assert ledger.find_run("monday") == "monday-2fca594c"  # a folder's name comes before a mere beginning
        assert ledger.find_run("monday-2-") == "monday-2-0a1b2c3d"
        assert ledger.find_run("tuesday-1") == "tuesday-11111111"
    assert json.loads(run("ledger", "show", "--run", "monday", "--json").out)["run"] == "monday-2fca594c"
    for wrong, sentence in (
        ("tuesday", "may mean tuesday-00000000, tuesday-11111111: give the whole name."),
        ("wednesday", "knows no run 'wednesday'."),
        ("", "knows no run ''."),
    ):
        refused = run("ledger", "show", "--run", wrong)
        assert (refused.code, sentence in " ".join(refused.err.split())) == (2, True), refused.err
