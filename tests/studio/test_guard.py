"""Who may ask the studio, and what every answer says."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from nestegg.studio.app import make_app
from nestegg.studio.guard import POLICY
from tests.conftest import Run

from .conftest import PORT, TOKEN

HERE = f"http://127.0.0.1:{PORT}"


def test_the_link_trades_its_token_for_a_cookie_and_keeps_the_rest(client: TestClient) -> None:
    client.cookies.clear()
    answer = client.get(f"/?token={TOKEN}&rounds=7", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?rounds=7")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert client.get("/").status_code == 200


def test_no_token_leads_to_another_host(client: TestClient) -> None:
    client.cookies.clear()
    answer = client.get(f"{HERE}//evil.example/?token={TOKEN}", follow_redirects=False)
    assert answer.headers["location"] == "/evil.example/"


def test_the_token_that_others_may_have_seen_is_good_once_and_a_second_use_ends_the_first(tmp_path: Path) -> None:
    app = make_app(tmp_path, token=TOKEN, port=PORT, ticket="ticket")
    first, second, owner = (TestClient(app, base_url=HERE) for _ in range(3))
    assert first.get("/?token=ticket").status_code == 200
    assert first.cookies[f"nestegg-{PORT}"] not in (TOKEN, "ticket")
    assert first.get("/runs").status_code == 200
    for _ in range(2):
        assert second.get("/?token=ticket").status_code == 401
        assert first.get("/runs").status_code == 401
    second.cookies.set(f"nestegg-{PORT}", "")
    assert second.get("/runs").status_code == 401
    assert owner.get(f"/?token={TOKEN}").status_code == 200


@pytest.mark.parametrize("other", ['a={"x": 1, "y": [2]}', "a[]=1", "a b c", "=", "nestegg-1=x"])
def test_cookies_of_other_programs_on_this_machine_are_not_in_the_way(client: TestClient, other: str) -> None:
    client.cookies.clear()
    assert client.get("/", headers={"cookie": f"{other}; nestegg-{PORT}={TOKEN}"}).status_code == 200


def test_port_80_is_left_out_by_browsers(tmp_path: Path) -> None:
    client = TestClient(make_app(tmp_path, token=TOKEN, port=80), base_url="http://127.0.0.1")
    assert client.get(f"/?token={TOKEN}").status_code == 200
    assert client.get("/", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("path", ["/", "/plan/answer", "/static/plan.js", "/nowhere", "/?token=", "/?token=wrong"])
def test_without_the_token_there_is_nothing_to_see(client: TestClient, path: str) -> None:
    client.cookies.clear()
    answer = client.get(path)
    assert answer.status_code == 401
    assert "Open the link" in answer.text


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_leads_here_by_rebinding_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_other_sites_are_not_answered(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/plan/answer", headers=headers)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(client: TestClient, method: str) -> None:
    assert client.request(method, "/", headers={"origin": HERE}).status_code == 405


@pytest.mark.parametrize("path", ["/", "/static/studio.css", "/nowhere", "/plan/answer?rounds=x"])
def test_every_answer_has_the_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("name", ["../guard.py", "..%2fguard.py", "%2e%2e/app.py", "plan.html", "__init__.py"])
def test_only_files_of_pages_are_served(client: TestClient, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "nestegg", "studio", str(tmp_path), "--no-browser", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--port = {port} cannot be had" in done.stderr
    assert "token" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "must be a folder that exists"),
        ([".", "--port", "70000"], "--port = 70000"),
        (["nowhere", "--ledger", "none.db"], "There is no ledger at none.db yet."),
        (["nowhere", "--ledger", "sqlite:////none/none.db"], "There is no ledger at /none/none.db yet."),
    ],
)
def test_a_wrong_start_is_a_sentence(tmp_path: Path, arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "nestegg", "studio", "--no-browser", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_ledger_is_named_by_the_folder_of_a_run_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str | None] = []
    monkeypatch.setattr("nestegg.studio.serve.serve", lambda folder, *, ledger, **others: shown.append(ledger))
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "ledger.db").touch()
    assert run("studio", tmp_path, "--ledger", tmp_path / "account").err == ""
    run("studio", tmp_path)
    assert shown == [str(tmp_path / "account" / "ledger.db"), None]
