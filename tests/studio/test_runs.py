"""Runs as the studio shows them: every state, live from another process, side by side, and nothing that is private."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from filelock import FileLock
from starlette.testclient import TestClient

from nestegg.configuration.config import load_config
from nestegg.runs import start_run
from nestegg.runs.comparison import variant
from nestegg.studio import watching
from nestegg.studio.guard import SANDBOX
from nestegg.studio.place import Place
from nestegg.studio.watching import Watch
from nestegg.training import Callback, RoundReport, State
from tests.browser import visit
from tests.runs.test_runs import config
from tests.studio.conftest import client_of, studio

ROOT = Path(__file__).parents[2]
WAITING = """
import sys
from nestegg.configuration.config import load_config
from nestegg.runs import start_run
from nestegg.training import Callback
from pathlib import Path

class Waiting(Callback):
    def on_round(self, state, report):
        print(report.round, flush=True)
        sys.stdin.readline()

start_run(load_config(sys.argv[1]), Path(sys.argv[2]), callbacks=[Waiting()])
"""


class Ender(Callback):
    def on_round(self, state: State, report: RoundReport) -> bool:
        return True


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a method, and another one that was stopped after its first round."""
    folder = tmp_path_factory.mktemp("runs")
    given = load_config(config(folder, key="rounds", line="rounds = 3"))
    (folder / "config.toml").unlink()
    for seed in (0, 1):
        start_run(variant(given, "idp-fedavg", seed), folder / "many" / f"idp-fedavg-{seed}")
    start_run(given, folder / "stopped", callbacks=[Ender()])
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return shutil.copytree(made, tmp_path / "runs")


def table(client: TestClient) -> dict[str, dict[str, Any]]:
    """What the first event tells, by path."""
    ends = iter([False, True])
    client.app.state.is_ending = lambda: next(ends)  # type: ignore[attr-defined]
    (event,) = client.get("/runs/events").text.strip().split("\n\n")
    found = json.loads(event.removeprefix("data: "))
    assert found["all"]
    return {run["path"]: run for run in found["runs"]}


def refusal(client: TestClient, path: str, **query: str) -> str:
    answer = client.get(path, params=query)
    assert answer.status_code == 422
    return str(answer.json()["wrong"][""])


def test_runs_are_found_with_their_numbers(made: Path) -> None:
    runs = table(client_of(made))
    assert list(runs) == ["many/idp-fedavg-0", "many/idp-fedavg-1", "stopped"]
    one, summary = runs["many/idp-fedavg-0"], json.loads((made / "many/idp-fedavg-0/summary.json").read_text())
    assert (one["state"], one["done"], one["rounds"], one["seed"]) == ("finished", 3, 3, 0)
    assert (one["measure"], one["quality"]) == ("test accuracy", f"{summary['final_accuracy']:.1f} %")
    last = json.loads((made / "many/idp-fedavg-0/rounds.jsonl").read_text().splitlines()[-1])
    assert {group["group"]: group["epsilon"] for group in one["spent"]} == last["epsilon_spent"]
    assert "not for release" in one["note"]
    assert runs["stopped"]["state"] == "stopped"
    assert "was stopped after round 1 by Ender, and can go on: nestegg run --resume" in runs["stopped"]["said"]


def test_a_run_that_is_at_work_and_one_that_was_killed_are_told_apart(folder: Path) -> None:
    run = folder / "many" / "idp-fedavg-0"
    (run / "summary.json").unlink()
    client = client_of(folder)
    with FileLock(run / ".lock"):
        assert table(client)["many/idp-fedavg-0"]["state"] == "running"
    found = table(client_of(folder))["many/idp-fedavg-0"]
    assert found["state"] == "interrupted"
    assert "killed after round 3 of 3" in found["said"]
    (run / "rounds.jsonl").unlink()
    assert "before its first round ended" in table(client_of(folder))["many/idp-fedavg-0"]["said"]
    with FileLock(run / ".lock", timeout=0):  # whoever looks leaves no lock behind
        pass


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("plan.json", '{"format": "nestegg-plan', "is not a complete JSON file"),
        ("plan.json", "[]", "is not a plan"),
        ("config.toml", "privacy = 3", "privacy"),
        ("rounds.jsonl", '{"round": 1, "accuracy": "high"}\n', "is damaged"),
        ("rounds.jsonl", "3\n", "is damaged"),
        ("rounds.jsonl", '{"round": 1, "accuracy": NaN, "epsilon_spent": {}}\n', "is damaged"),
        ("summary.json", "{", "cannot be read"),
        ("summary.json", '{"rounds": NaN}', "is damaged"),
        ("rounds.jsonl", '{"round": 1, "accuracy": 1e999, "epsilon_spent": {}}\n', "is damaged"),
        ("rounds.jsonl", f'{{"round": 1, "accuracy": 1{"0" * 400}, "epsilon_spent": {{}}}}\n', "is damaged"),
        ("rounds.jsonl", f'{{"round": 1, "accuracy": {"[" * 100_000}\n', "is damaged"),
        ("summary.json", "[" * 100_000, "is damaged"),
        ("summary.json", '{"rounds": 1, "stopped": "\\ud800"}', "is damaged"),
    ],
)
def test_a_damaged_folder_is_a_sentence(folder: Path, name: str, content: str, sentence: str) -> None:
    (folder / "stopped" / name).write_text(content)
    client = client_of(folder)
    runs = table(client)
    assert runs["stopped"]["state"] == "damaged"
    assert sentence in runs["stopped"]["said"]
    assert runs["many/idp-fedavg-1"]["state"] == "finished"
    assert sentence in refusal(client, "/runs/answer", run="stopped")
    assert sentence in refusal(client, "/runs/compare", run="stopped")


@pytest.mark.parametrize("name", ["plan.json", "rounds.jsonl", "audit.json", ".lock"])
def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(folder: Path, name: str) -> None:
    (folder / "stopped" / name).unlink(missing_ok=True)
    os.mkfifo(folder / "stopped" / name)
    client = client_of(folder)
    runs = table(client)
    assert "is not a file" in runs["stopped"]["said"]
    assert runs["many/idp-fedavg-1"]["state"] == "finished"
    (folder / "stopped" / "report.html").unlink()
    os.mkfifo(folder / "stopped" / "report.html")
    assert "is not a file" in refusal(client, "/runs/file", run="stopped", name="report.html")


def test_a_file_that_no_run_writes_is_not_read(folder: Path) -> None:
    with (folder / "stopped" / "rounds.jsonl").open("ab") as file:
        file.truncate(2**28 + 1)  # it takes no room
    assert "the studio reads at most" in table(client_of(folder))["stopped"]["said"]


def test_what_resumes_a_run_can_be_copied_into_a_shell(folder: Path) -> None:
    (folder / "stopped").rename(folder / "x; touch y")
    said = table(client_of(folder))["x; touch y"]["said"]
    assert said.endswith(f"nestegg run --resume '{folder}/x; touch y'")


def test_nothing_of_a_configuration_is_imported(folder: Path) -> None:
    run = folder / "stopped"
    text = (run / "config.toml").read_text().replace('name = "mlp"', 'name = "evil:make"')
    text = re.sub('method = ".*"', 'method = "evil:make"', text)
    text = re.sub('dataset = ".*"', 'dataset = "evil:make"', text)
    assert text.count("evil:make") == 3
    (run / "config.toml").write_text(text)
    (run / "evil.py").write_text(f"open({str(folder / 'executed')!r}, 'w')\n")
    client = client_of(folder)
    assert "evil:make" in table(client)["stopped"]["data"]
    assert client.get("/runs/answer?run=stopped").status_code == 200
    assert client.get("/statement?run=stopped").status_code == 200
    assert not (folder / "executed").exists()


def test_the_page_of_a_run_has_its_numbers_and_charts(made: Path) -> None:
    client = client_of(made)
    found = client.get("/runs/answer?run=many/idp-fedavg-1").json()
    assert sorted(found["charts"]) == ["accuracy", "spending"]
    drawn = [row["accuracy"] for row in found["charts"]["accuracy"]["data"]["values"]]
    lines = (made / "many/idp-fedavg-1/rounds.jsonl").read_text().splitlines()
    assert drawn == [json.loads(line)["accuracy"] for line in lines]
    summary = json.loads((made / "many/idp-fedavg-1/summary.json").read_text())
    assert [one["epsilon_left"] for one in found["accounts"]] == [one["epsilon_left"] for one in summary["groups"]]
    assert found["files"] == ["report.html", "plan.json", "summary.json"]
    assert found["audit"] is None
    assert "many/idp-fedavg-1" in client.get("/runs/show?run=many/idp-fedavg-1").text


def test_an_audit_is_told_in_a_sentence(folder: Path) -> None:
    finding = {
        "refutes": False,
        "group": None,
        "attack": "a",
        "arm": "b",
        "says": "c",
        "trials": 1,
        "p_corrected": None,
    }
    content = {
        "findings": [finding, finding],
        "evidence": [],
        "seconds": 1.0,
        "interrupted": False,
        "caveat": "c",
        "engine": "loop",
        "method": "m",
        "clients": 2,
        "rounds": 3,
        "delta": 1e-5,
        "version": "1",
        "plan": "p",
        "groups": [],
        "all_groups": 2,
    }
    (folder / "stopped" / "audit.json").write_text(json.dumps(content))
    client = client_of(folder)
    assert "not refuted by any of 2" in client.get("/runs/answer?run=stopped").json()["audit"]
    content["findings"] = [finding, {**finding, "refutes": True}]
    (folder / "stopped" / "audit.json").write_text(json.dumps(content))
    assert "refuted by 1 of 2" in client.get("/runs/answer?run=stopped").json()["audit"]
    (folder / "stopped" / "audit.json").write_text("[" * 100_000)
    assert client.get("/runs/answer?run=stopped").json()["audit"] == "its file is damaged."
    assert "what came of the audit is not known" in refusal(client, "/statement", run="stopped")


def test_seeds_are_one_curve_in_a_band(made: Path) -> None:
    client = client_of(made)
    paths = ["many/idp-fedavg-0", "stopped", "many/idp-fedavg-1"]
    found = client.get("/runs/compare", params={"run": paths}).json()
    lines = [(made / path / "rounds.jsonl").read_text().splitlines() for path in (paths[0], paths[2])]
    seeds = np.array([[json.loads(line)["accuracy"] for line in some] for some in lines])
    chart = found["charts"]["comparison"]
    rows = [row for row in chart["data"]["values"] if row["method"] == "idp-fedavg"]
    assert [row["accuracy"] for row in rows] == seeds.mean(axis=0).tolist()
    assert [row["low"] for row in rows] == seeds.min(axis=0).tolist()
    assert [row["high"] for row in rows] == seeds.max(axis=0).tolist()
    assert [row[0] for row in found["rows"]] == ["idp-fedavg", "stopped"]
    assert [row[-1] for row in found["rows"]] == ["2", "1"]
    assert any("not for release" in sentence for sentence in found["said"])


def test_curves_of_different_lengths_and_of_nothing(folder: Path) -> None:
    first = folder / "many" / "idp-fedavg-0"
    lines = (first / "rounds.jsonl").read_text().splitlines()
    (first / "rounds.jsonl").write_text("".join(f"{line}\n" for line in lines[:2]))
    (folder / "stopped" / "rounds.jsonl").unlink()
    client = client_of(folder)
    query = {"run": ["many/idp-fedavg-0", "many/idp-fedavg-1", "stopped"]}
    found = client.get("/runs/compare", params=query).json()
    assert "Runs of idp-fedavg have come to different rounds: the shortest counts." in found["said"]
    assert "stopped has no round yet." in found["said"]
    assert len(found["charts"]["comparison"]["data"]["values"]) == 2
    untested = [json.dumps({**json.loads(line), "accuracy": None, "loss": None}) for line in lines]
    (first / "rounds.jsonl").write_text("".join(f"{line}\n" for line in untested))
    assert "on public test data" in refusal(client, "/runs/compare", run="many/idp-fedavg-0")
    assert "has a round yet" in refusal(client, "/runs/compare", run="stopped")
    assert "has a round yet" in refusal(client, "/runs/compare")


def test_files_are_served_by_a_list_in_a_sandbox(made: Path) -> None:
    client = client_of(made)
    for name in ("report.html", "plan.json", "summary.json"):
        answer = client.get("/runs/file", params={"run": "stopped", "name": name})
        assert answer.content == (made / "stopped" / name).read_bytes()
        assert answer.headers["Content-Security-Policy"] == SANDBOX
    for name in ("config.toml", "checkpoint.safetensors", "private/members.json", "../stopped/plan.json", ""):
        assert "must be one of" in refusal(client, "/runs/file", run="stopped", name=name)
    assert "cannot be read" in refusal(client, "/runs/file", run="stopped", name="audit.html")


@pytest.mark.parametrize(
    "path", ["..", "../other", "/etc", "stopped/private", "many/../../other", "link", "a\0b", "out"]
)
def test_no_path_leads_out_or_into_what_is_private(folder: Path, path: str) -> None:
    other = shutil.copytree(folder / "stopped", folder.parent / "other")
    (folder / "link").symlink_to(other)
    (folder / "out").mkdir()
    for name in ("config.toml", "plan.json", "report.html"):
        (folder / "out" / name).symlink_to(other / name)
        shutil.copy(other / name, folder / "stopped" / "private" / name)
    client = client_of(folder)
    runs = table(client)
    assert "link" not in runs
    assert runs["out"]["state"] == "damaged"
    assert "not below the folder" in runs["out"]["said"]
    for address in ("/runs/answer", "/runs/compare", "/runs/file"):
        assert ("no path" if "\0" in path else "not below") in refusal(client, address, run=path, name="report.html")


def test_a_statement_calls_no_server_that_a_configuration_names_and_follows_no_link(folder: Path) -> None:
    run = folder / "stopped"
    text, own = (run / "config.toml").read_text(), run / "private" / "ledger.db"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        url = f"postgresql://me@127.0.0.1:{port}/x"
        (run / "config.toml").write_text(text.replace("[ledger]\n", f'[ledger]\nurl = "{url}"\n'))
        client = client_of(folder)
        for path in ("/statement", "/statement.pdf", "/runs/answer"):
            client.get(path, params={"run": "stopped"})
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
        assert f"is paid by the ledger '{url}'" in refusal(client, "/statement", run="stopped")
        # The one that the studio was started with is asked, and no other.
        assert client_of(folder, str(own)).get("/statement?run=stopped").status_code == 200
    (run / "config.toml").write_text(text)
    assert client.get("/statement?run=stopped").status_code == 200
    own.rename(folder / "elsewhere.db")
    own.symlink_to(folder / "elsewhere.db")
    assert "leads out of the run's folder" in refusal(client, "/statement", run="stopped")
    (run / "model.safetensors").unlink(missing_ok=True)
    (run / "model.safetensors").symlink_to("/etc/hostname")
    assert "not below the folder" in refusal(client, "/statement", run="stopped")


def test_nothing_private_is_in_an_answer(made: Path) -> None:
    client = client_of(made)
    secret = json.loads((made / "stopped/private/fingerprint.json").read_text())["key"]
    (made / "stopped" / "private").chmod(0o000)  # for whoever is not root
    try:
        texts = [json.dumps(table(client))] + [
            client.get(path, params={"run": "stopped", "name": "report.html"}).text
            for path in ("/runs", "/runs/show", "/runs/answer", "/runs/compare", "/runs/file")
        ]
    finally:
        (made / "stopped" / "private").chmod(0o700)
    for text in texts:
        assert secret not in text
        assert "seconds" not in text or "report" in text
        assert "cohort_size" not in text


def test_time_left_comes_from_rounds_that_were_seen_to_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, now = folder / "many" / "idp-fedavg-0", 1000.0
    lines = (run / "rounds.jsonl").read_text().splitlines()
    watch = Watch(Place(folder), clock=lambda: now)

    def left(rounds: int, later: float) -> str:
        nonlocal now
        now += later
        (run / "rounds.jsonl").write_text("".join(f"{line}\n" for line in lines[:rounds]))
        rows = {row["path"]: row for row in watch.table()["runs"]}
        assert rows["many/idp-fedavg-0"]["done"] == rounds
        return str(rows["many/idp-fedavg-0"]["left"])

    with FileLock(run / ".lock"):
        monkeypatch.setattr(watching, "_ABSENT", 1e9)
        assert left(0, 1.0) == ""
        assert left(1, 50.0) == ""  # when that round began is not known
        assert left(2, 240.0) == "about 4 min"
        assert left(2, 130.0) == "about 2 min"
        monkeypatch.setattr(watching, "_ABSENT", 5.0)
        assert left(2, 10.0) == ""  # nobody was looking
    assert left(3, 1.0) == ""


def test_a_run_of_another_process_is_watched_and_killed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    watcher = started("-m", "nestegg", "studio", place, "--no-browser")
    trainer = started("-c", WAITING, config(tmp_path), place / "other")
    assert watcher.stdout is not None
    assert trainer.stdout is not None
    assert trainer.stdin is not None
    try:
        link = watcher.stdout.readline().split(" at ")[1].strip()
        with httpx.Client(follow_redirects=True, timeout=60) as browser:
            browser.get(link.replace("/?", "/runs?"))
            with browser.stream("GET", link.split("?")[0] + "runs/events?run=other") as events:
                news = (json.loads(line[6:])["runs"] for line in events.iter_lines() if line.startswith("data: "))
                assert trainer.stdout.readline() == "1\n"
                seen = next(run for (run, *_) in filter(None, news) if run["done"] == 1)
                assert seen["state"] == "running"
                trainer.stdin.write("\n")
                trainer.stdin.flush()
                seen = next(run for (run,) in news if run["done"] == 2)
                assert (seen["state"], seen["rounds"]) == ("running", 6)
                trainer.kill()
                seen = next(run for (run,) in news if run["state"] != "running")
                assert seen["state"] == "interrupted"
                assert "killed after round 2 of 6" in seen["said"]
                watcher.send_signal(signal.SIGINT)
                assert not any(news)  # it comes to an end by itself
        assert "Cancel" not in watcher.communicate(timeout=60)[1]  # which uvicorn says when it has to be rude
    finally:
        for process in (trainer, watcher):
            process.kill()
            process.communicate()


def started(*arguments: object) -> subprocess.Popen[str]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *map(str, arguments)], **pipes, text=True, cwd=ROOT)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def live(made: Path) -> Iterator[str]:
    with studio(made) as link:
        yield link


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (1400, True), (390, False)])
def test_the_pages_are_for_everybody(chromium: Any, live: str, width: int, dark: bool) -> None:
    with visit(chromium, live.replace("/?", "/runs?"), width=width, dark=dark) as visited:
        page = visited.page
        page.wait_for_selector("#runs tbody tr")
        page.fill("#filter", "idp")
        page.click("#all")
        page.wait_for_selector("#chart-comparison svg")
        assert "run=many%2Fidp-fedavg-1" in page.url
        assert page.locator("#finals tbody tr").count() == 1
        assert (visited.findings(), visited.overflowing()) == ([], [])
        page.reload()
        page.wait_for_selector("#chart-comparison svg")
        page.get_by_role("link", name="many/idp-fedavg-1").click()
        page.wait_for_selector("#chart-spending svg")
        assert page.locator("#state").inner_text() == "finished"
        assert (visited.findings(), visited.overflowing()) == ([], [])
        page.get_by_role("link", name="Report").click()
        page.wait_for_selector('[data-drawn="interactive"]')
        assert visited.console == []
        host = live.split("?")[0]
        assert all(asked.startswith((host, "data:")) for asked in visited.requests)
