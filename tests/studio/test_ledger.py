"""The ledger as the studio shows it: the numbers that accounts have, page by page, whatever state the file is in."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from starlette.testclient import TestClient

from nestegg import Budget, Group, plan
from nestegg.ledger import Ledger, database
from nestegg.ledger.database import checked_url
from nestegg.ledger.looking import some_names
from nestegg.studio.draft import Draft, DraftGroup
from tests.browser import visit
from tests.examples import soak
from tests.ledger.ledgers import spend, tamper, two_groups
from tests.studio.conftest import client_of, studio

NASTY = "<script>alert(1)</script>"
WRITER = """
import sys
from nestegg.ledger import Ledger
with Ledger(sys.argv[1]) as ledger:
    books = ledger.books("monday")
    for round_ in range(4, 7):
        sys.stdin.readline()
        books.release(round_, books.reserve(round_), f"result {round_}")
        print(round_, flush=True)
"""


def fill(where: str) -> None:
    """Four clients in two runs, 120 in none; one budget was raised, and one client has withdrawn."""
    named = {name: Budget(12.0) for name in ("ada", "bob", "cleo", NASTY)}
    idle = {f"idle {i:03}": Budget(1.0 + i) for i in range(120)}
    with Ledger(where) as ledger:
        ledger.set_budgets({**named, **idle}, rule="renyi", author="officer")
        spend(ledger.begin("monday", two_groups(4.0), list(named), note="not for release"), 3)
        spend(ledger.begin("tuesday", two_groups(4.0), list(named)), 1)
        ledger.set_budgets({"bob": Budget(15.0)}, reason="asked for it & signed", author="root")
        ledger.withdraw("cleo", "moved away", author="root")


@pytest.fixture
def where(tmp_path: Path) -> str:
    fill(f"sqlite:///{tmp_path / 'ledger.db'}")
    return str(tmp_path / "ledger.db")


@pytest.fixture
def client(tmp_path: Path, where: str) -> TestClient:
    return client_of(tmp_path, where)


def accounts(client: TestClient, **query: str) -> dict[str, dict[str, Any]]:
    answer = client.get("/ledger/accounts", params=query)
    assert answer.status_code == 200, answer.text
    return {row["client"]: row for row in answer.json()["rows"]}


def refusal(client: TestClient, path: str, /, **query: str) -> str:
    """The sentence of JSON, or of a page."""
    answer = client.get(path, params=query)
    assert answer.status_code == 422
    if answer.headers["Content-Type"] == "application/json":
        return str(answer.json()["wrong"][""])
    (sentence,) = re.findall(r'<p class="wrong card" role="alert">(.*)</p>', answer.text)
    return str(sentence)


def test_accounts_have_the_ledgers_numbers(client: TestClient, where: str) -> None:
    found = accounts(client)
    assert len(found) == 50
    assert list(found)[:4] == [NASTY, "ada", "bob", "cleo"]
    with Ledger(Path(where), read_only=True) as ledger:
        for name in list(found)[:5]:
            account = ledger.account(name)
            assert found[name]["epsilon_spent"] == account.epsilon
            assert found[name]["epsilon_left"] == account.left
            assert found[name]["epsilon"] == account.budget.epsilon
        by_pld = client.get("/ledger/pld?client=bob").json()["epsilon_pld"]
        assert by_pld == ledger.account("bob").epsilon_pld > 0.0
    assert (found["bob"]["epsilon"], found["cleo"]["withdrawn"], found["ada"]["withdrawn"]) == (15.0, True, False)


def test_pages_follow_each_other_without_gaps(client: TestClient) -> None:
    seen, after = list[str](), ""
    for _ in range(3):
        answer = client.get("/ledger/accounts", params={"after": after}).json()
        seen += [row["client"] for row in answer["rows"]]
        after = answer["more"]
    assert after is None
    assert len(seen) == 124
    assert all(one < other for one, other in pairwise(seen))


def test_clients_are_found_by_how_they_begin_and_by_run(client: TestClient) -> None:
    assert list(accounts(client, prefix="idle 01")) == [f"idle {i:03}" for i in range(10, 20)]
    assert list(accounts(client, prefix="idle 01", after="idle 017")) == ["idle 018", "idle 019"]
    assert list(accounts(client, prefix="bob")) == ["bob"]
    assert list(accounts(client, run="monday")) == [NASTY, "ada", "bob", "cleo"]
    assert list(accounts(client, run="monday", prefix="b")) == ["bob"]
    for prefix in ("%", "_", "' OR 1=1 --", "\0", "BOB", "bobb"):
        assert accounts(client, prefix=prefix) == {}
    assert "is not in the ledger" in refusal(client, "/ledger/accounts", run="friday")


def test_a_name_is_found_however_it_is_spelt(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budgets({"Ada M\u00fcller": Budget(1.0), "Ada M\U0001f600": Budget(1.0)})
    client = client_of(tmp_path, str(tmp_path / "ledger.db"))
    assert list(accounts(client, prefix="Ada Mu\u0308")) == ["Ada M\u00fcller"]
    assert len(accounts(client, prefix="Ada M")) == 2


def test_names_are_in_one_order_whatever_the_database(url: str) -> None:
    names = ["Zoe", "ada", "a b", "a-b", "ab", "\u00e4", "B", "b", "z\U0001f600"]
    with Ledger(url) as ledger:
        ledger.set_budgets({name: Budget(1.0) for name in names})
        assert ledger.names() == sorted(names)
        assert ledger.names("a") == sorted(name for name in names if name.startswith("a"))
        assert ledger.names(after="b", count=2) == sorted(name for name in names if name > "b")[:2]


def test_a_clients_page_has_its_history(client: TestClient, where: str) -> None:
    page = client.get("/ledger/client?client=bob").text
    assert "ε 12 → 15" in page
    assert "asked for it &amp; signed" in page
    assert "monday" in page
    assert "not for release" in page
    with Ledger(Path(where), read_only=True) as ledger:
        account = ledger.account("bob")
    for number in (account.epsilon, account.left, account.within("monday"), account.within("tuesday")):
        assert f"{number:.3f}" in page
    gone = client.get("/ledger/client?client=cleo").text
    assert "moved away" in gone
    assert "It has withdrawn" in gone
    nasty = client.get("/ledger/client", params={"client": NASTY}).text
    assert NASTY not in nasty
    assert "&lt;script&gt;" in nasty
    assert "Did you mean &#39;bob&#39;" in refusal(client, "/ledger/client", client="bobb")


def test_a_runs_page_has_its_charges(client: TestClient) -> None:
    page = client.get("/ledger/run?run=monday").text
    made = two_groups(4.0)
    for row in made.groups:
        for round_ in range(3):
            sigma = f"{row.noise_multiplier[round_]:.4g}"
            assert re.search(rf"<td>{round_ + 1}</td><td>{row.group.name}</td><td>[^<]*</td><td>{sigma}</td>", page)
    assert page.count("<td>released</td>") == 6
    assert "Not for release" in page
    assert "knows no run" in refusal(client, "/ledger/run", run="friday")


def test_verify_says_what_and_when_or_what_is_wrong(client: TestClient, where: str) -> None:
    with Ledger(Path(where), read_only=True) as ledger:
        position = ledger.position()
    found = client.get("/ledger/verify").json()
    assert (found["entries"], found["head"]) == position
    assert (found["clients"], found["withdrawn"]) == (124, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["day"])
    tamper(f"sqlite:///{where}", "UPDATE budgets SET epsilon = 99 WHERE client = 1")
    assert "is not what was written" in refusal(client, "/ledger/verify")


def test_what_is_left_for_a_drafts_groups(client: TestClient, where: str) -> None:
    draft = Draft(groups=(DraftGroup("low", 10, 2.5), DraftGroup("high", 5, 100.0)))
    with Ledger(Path(where), read_only=True) as ledger:
        left = [account.left for name, account in ledger.clients() if not account.withdrawn]
    said = client.get(f"/ledger/left?{draft.to_query()}").json()["sentences"]
    for group, sentence in zip(draft.groups, said, strict=False):
        enough = sum(one >= group.epsilon for one in left)
        assert sentence == f"{group.name}: {enough} of 123 accounts have ε = {group.epsilon:g} or more left."
    assert said[-1] == f"The least that an account has left is ε = {min(left):.3f}."
    with Ledger(Path(where)) as ledger:
        ledger.withdraw("idle 119", "why not")
    assert "of 122 accounts" in client.get(f"/ledger/left?{draft.to_query()}").json()["sentences"][0]
    assert client.get("/ledger/left?rounds=0").status_code == 422


def test_without_a_ledger_the_page_says_how_to_give_one(tmp_path: Path) -> None:
    client = client_of(tmp_path)
    assert "nestegg studio --ledger" in client.get("/ledger").text
    assert client.get("/ledger/left").json() == {"sentences": []}
    for path in ("/ledger/accounts", "/ledger/verify", "/ledger/client", "/ledger/run", "/ledger/pld"):
        assert "no ledger is open" in refusal(client, path, client="ada", run="monday")


def test_a_ledger_that_is_written_meanwhile_is_shown_as_it_is(client: TestClient, where: str) -> None:
    command = [sys.executable, "-c", WRITER, f"sqlite:///{where}"]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    spent = [accounts(client, prefix="ada")["ada"]["epsilon_spent"]]
    for _ in range(3):
        writer.stdin.write("\n")
        writer.stdin.flush()
        accounts(client)  # while it writes
        writer.stdout.readline()
        spent.append(accounts(client, prefix="ada")["ada"]["epsilon_spent"])
    writer.communicate()
    assert writer.returncode == 0
    assert all(one < other for one, other in pairwise(spent))
    with closing(sqlite3.connect(where, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # a writer that takes its time
        assert accounts(client, prefix="ada")["ada"]["epsilon_spent"] == spent[-1]
    assert client.get("/ledger/verify").status_code == 200


def test_nothing_is_written(client: TestClient, where: str) -> None:
    before = Path(where).read_bytes()
    pages = [
        client.get(path, params={"client": "ada", "run": "monday"}).status_code
        for path in ("/ledger", "/ledger/accounts", "/ledger/client", "/ledger/run", "/ledger/pld", "/ledger/verify")
    ]
    assert pages == [200] * 6
    assert Path(where).read_bytes() == before


@pytest.mark.parametrize("damage", ["cut", "garbage", "missing", "folder", "locked", "old"])
def test_a_ledger_that_cannot_be_read_is_a_sentence(
    damage: str, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PATIENCE", 0)
    path = Path(where)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        if damage == "locked":
            other.execute("BEGIN EXCLUSIVE")
        if damage == "old":
            path = tmp_path / "old.db"
            with closing(sqlite3.connect(path)) as old:
                old.executescript((Path(__file__).parents[1] / "ledger" / "ledger-v1.sql").read_text())
        content = path.read_bytes()
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        if damage == "garbage":
            path.write_bytes(b"no ledger" * 1000)
        wanted = {"missing": tmp_path / "nowhere.db", "folder": tmp_path}.get(damage, path)
        client = client_of(tmp_path, str(wanted))
        sentences = {
            "cut": "malformed",
            "garbage": "not a database",
            "missing": "does not exist",
            "folder": "is a folder",
            "locked": "locked",
            "old": "nestegg ledger migrate",
        }
        assert sentences[damage] in refusal(client, "/ledger/verify")
        assert client.get("/ledger").status_code in (200, 422)
        if damage != "cut":  # what is whole of it may be shown
            assert sentences[damage] in refusal(client, "/ledger")
            assert sentences[damage] in refusal(client, "/ledger/accounts")


@pytest.mark.parametrize(
    "url", ["postgresql://ada:sesame@host/name", "postgresql://ada:ses/ame@host:port/name", "mysql://a:sesame@h/n"]
)
def test_a_password_is_never_shown(url: str, tmp_path: Path) -> None:
    client = client_of(tmp_path, url)
    for path in ("/ledger", "/ledger/accounts"):
        answer = client.get(path)
        assert answer.status_code == 422
        assert "ame@" not in answer.text
        assert "ledger.url" in answer.text


@pytest.fixture(scope="module", params=[100_000, soak(1_000_000, "million")])
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    path, number = tmp_path_factory.mktemp("many") / "ledger.db", request.param
    with Ledger(path) as ledger:
        ledger.set_budgets({f"client-{i:07}": Budget(10.0) for i in range(number)}, rule="renyi")
        made = plan([Group("all", 4, Budget(5.0))], rounds=3, accountant="renyi")
        spend(ledger.begin("small", made, [f"client-{i:07}" for i in (5, 99, 70_000, 99_999)]), 2)
    return number, path


@pytest.mark.slow
def test_one_of_many_is_found_without_reading_all(many: tuple[int, Path]) -> None:
    number, path = many
    client = client_of(path.parent, str(path))
    last = f"client-{number - 1:07}"
    found = accounts(client, prefix=last)
    assert list(found) == [last]
    assert accounts(client, prefix="client-007")["client-0070000"]["epsilon_spent"] > 0.0
    assert len(accounts(client, run="small")) == 4
    assert last in client.get("/ledger/client", params={"client": last}).text
    engine, asked = create_engine(checked_url(f"sqlite:///{path}")), list[str]()

    def explain(conn: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        asked.extend(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values))

    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", explain)
        assert some_names(connection, "client-007", after="client-0070001", count=1) == ["client-0070002"]
    engine.dispose()
    assert asked
    assert all("SEARCH" in step and "INDEX" in step for step in asked)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("live")
    fill(f"sqlite:///{folder / 'ledger.db'}")
    with studio(folder, "--ledger", str(folder / "ledger.db")) as link:
        yield link


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (1400, True), (390, False)])
def test_the_pages_are_for_everybody(chromium: Any, live: str, width: int, dark: bool) -> None:
    with visit(chromium, live.replace("/?", "/ledger?"), width=width, dark=dark) as visited:
        page = visited.page
        page.wait_for_selector("#accounts tbody tr:nth-child(50)")
        page.click("#more")
        page.wait_for_selector("#back:visible")
        page.fill("#prefix", "bo")
        page.wait_for_selector("#accounts tbody tr:only-child")
        assert "prefix=bo" in page.url
        page.click("#accounts button")
        page.wait_for_selector("#accounts td:nth-child(6):not(:has(button))")
        page.click("#verify")
        page.wait_for_selector("#verified.good")
        assert "nobody is over budget" in page.locator("#verified").inner_text()
        assert (visited.findings(), visited.overflowing()) == ([], [])
        page.get_by_role("link", name="bob").click()
        page.click("#ask-pld")
        page.locator("#pld").filter(has_text=".").wait_for()
        assert (visited.findings(), visited.overflowing()) == ([], [])
        page.get_by_role("link", name="monday").click()
        page.wait_for_selector("text=Charges, round by round")
        assert (visited.findings(), visited.overflowing()) == ([], [])
        assert visited.console == []
