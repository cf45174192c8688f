"""Runs that are at work, seen from another process and in a browser."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from filelock import FileLock

from nestegg.studio import watching
from nestegg.studio.place import Place
from nestegg.studio.watching import Watch
from tests.browser import visit
from tests.runs.test_runs import config
from tests.studio.conftest import studio

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
