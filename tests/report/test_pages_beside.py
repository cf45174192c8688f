"""Pages that a process beside the training one writes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nestegg import Budget, Group, Plan, plan
from nestegg.configuration.config import changed, load_config
from nestegg.configuration.participants import make_plan, quick_plan
from nestegg.release import NOT_FOR_RELEASE
from nestegg.report.charts import _drawn
from nestegg.report.page import get_ready
from nestegg.report.pages import PageContent, Pages, PagesBeside, pages_beside

ROOT = Path(__file__).parents[2]


def made_plan() -> Plan:
    return plan([Group("strict", 3, Budget(2.0)), Group("open", 5, Budget(8.0))], rounds=3)


def content(folder: Path) -> PageContent:
    """The page of a run that told its accuracy, in a new folder."""
    made = made_plan()
    rounds = [{"round": t, "accuracy": 50.0 + t, "loss": 1.0 / t} for t in (1, 2, 3)]
    groups = [
        {
            "name": row.group.name,
            "account": "rdp",
            "epsilon": row.group.budget.epsilon,
            "epsilon_earlier": 0.0,
            "epsilon_here": row.epsilon_spent[-1],
            "epsilon_spent": row.epsilon_spent[-1],
            "epsilon_left": 0.0,
        }
        for row in made.groups
    ]
    summary = {
        **dict.fromkeys(("method", "dataset", "model", "run"), "a name"),
        "seed": 0,
        "rounds": 3,
        "final_accuracy": 53.0,
        "final_loss": 0.3,
        "epsilon_of_rounding": 1e-9,
        "note": NOT_FOR_RELEASE,
        "groups": groups,
    }
    folder.mkdir()
    return PageContent(folder, made, rounds, summary, None, "update")


def in_a_new_process(code: str, folder: Path) -> tuple[int, bytes, bytes]:
    """Run code with the names of this module and a `folder` where nothing was forked, drawn or imported before.

    Returns when nobody has its output open any more, so when all that it forked has ended.
    """
    names = f"from {__name__} import *; from {__name__} import _drawn; folder = Path({str(folder)!r})"
    process = subprocess.run([sys.executable, "-c", f"{names}\n{code}"], capture_output=True, timeout=300, cwd=ROOT)
    return process.returncode, process.stdout, process.stderr


def test_a_page_from_beside_is_the_page_with_its_charts_as_files(tmp_path: Path) -> None:
    beside = "pages_beside(lambda: get_ready(made_plan(), NOT_FOR_RELEASE), as_files=True)"
    code = f"pages = {beside}; Pages.made = None; pages.write(content(folder / 'there'))"  # here nothing can be made
    assert in_a_new_process(code, tmp_path) == (0, b"", b"")
    Pages(as_files=True).write(content(tmp_path / "here"))
    here, there = ({path.name: path.read_bytes() for path in (tmp_path / one).iterdir()} for one in ("here", "there"))
    assert here == there
    assert {"report.html", "accuracy.png", "noise.svg"} <= here.keys()
    assert b"The judge agrees" in here["report.html"]


def failing() -> None:
    raise ValueError("in the other process")


def test_what_fails_there_is_done_here_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = content(tmp_path / "run")
    PagesBeside(failing).write(one)
    assert (one.folder / "report.html").is_file()
    assert capfd.readouterr() == ("", "")


def test_a_page_is_made_here_after_a_long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestegg.report.pages._PATIENCE", 0)
    one = content(tmp_path / "run")
    PagesBeside(lambda: None).write(one)
    assert (one.folder / "report.html").is_file()


def test_it_ends_with_its_parent_whatever_ends_that(tmp_path: Path) -> None:
    code = "import os; assert type(pages_beside(lambda: None)) is PagesBeside; os.kill(os.getpid(), 9)"
    assert in_a_new_process(code, tmp_path) == (-9, b"", b"")


def test_a_run_gets_ready_before_torch_is_imported(tmp_path: Path) -> None:
    """The command forks, and its plan, made ahead, is the one that it trains by: all that is drawn of it is known."""
    code = """
from nestegg.cli import run as command
from nestegg.report import pages
class Seen(Exception): pass
def beside(ahead, *, as_files):
    made = pages_beside(ahead, as_files=as_files)
    assert type(made) is PagesBeside
    ahead()
    raise Seen
pages.pages_beside = beside
try:
    command.run(ROOT / "examples" / "digits.toml", folder / "run")
except Seen:
    print(_drawn.cache_info()[:2])
"""
    assert in_a_new_process(code, tmp_path) == (0, b"(0, 3)\n", b"")


def test_plans_are_made_ahead_where_that_is_quick() -> None:
    config = load_config(ROOT / "examples" / "digits.toml")
    assert quick_plan(config) == make_plan(config)
    for section, values in (
        ("privacy", {"accountant": "pld"}),
        ("privacy", {"method": "mine:Planner"}),
        ("training", {"rounds": 400}),
        ("federation", {"dataset": "people.parquet"}),
    ):
        assert quick_plan(changed(config, section, **values)) is None, values


def test_nothing_is_forked_beside_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "vl_convert"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert type(pages_beside(lambda: None)) is Pages
    finally:
        end.set()
        thread.join()


def test_what_was_got_ready_is_not_drawn_again(tmp_path: Path) -> None:
    one = content(tmp_path / "run")
    _drawn.cache_clear()
    get_ready(one.plan, NOT_FOR_RELEASE)
    Pages().write(one)
    assert _drawn.cache_info()[:2] == (3, 4)  # spending, sampling and noise were known; accuracy was not
    get_ready(None)  # without a plan there is only something to start
