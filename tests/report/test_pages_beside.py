"""Pages that a process beside the training one writes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nestegg import Budget, Group, Plan, plan
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
    names = f"import os; from pathlib import Path; from {__name__} import *; folder = Path({str(folder)!r})"
    process = subprocess.run([sys.executable, "-c", f"{names}\n{code}"], capture_output=True, timeout=300, cwd=ROOT)
    return process.returncode, process.stdout, process.stderr


def test_a_page_from_beside_is_the_page_with_its_charts_as_files(tmp_path: Path) -> None:
    beside = "pages_beside(lambda: get_ready(made_plan(), NOT_FOR_RELEASE), as_files=True)"
    code = f"pages = {beside}; assert type(pages) is PagesBeside; pages.write(content(folder / 'there'))"
    assert in_a_new_process(code, tmp_path) == (0, b"", b"")
    Pages(as_files=True).write(content(tmp_path / "here"))
    here, there = ({path.name: path.read_bytes() for path in (tmp_path / one).iterdir()} for one in ("here", "there"))
    assert here == there
    assert {"report.html", "accuracy.png", "noise.svg"} <= here.keys()
    assert b"The judge agrees" in here["report.html"]


def test_a_page_is_written_here_if_the_process_beside_is_gone(tmp_path: Path) -> None:
    one = content(tmp_path / "run")
    PagesBeside(lambda: os._exit(1)).write(one)
    assert (one.folder / "report.html").is_file()


def test_what_fails_there_is_told_here(tmp_path: Path) -> None:
    code = "one = content(folder / 'run'); one.folder.rmdir(); pages_beside(lambda: None).write(one)"
    status, said, told = in_a_new_process(code, tmp_path)
    assert (status, said) == (1, b"")
    assert told.count(b"Traceback") == 1
    assert b"report.html cannot be written" in told


def test_it_ends_with_its_parent_whatever_ends_that(tmp_path: Path) -> None:
    assert in_a_new_process("pages_beside(lambda: None); os.kill(os.getpid(), 9)", tmp_path) == (-9, b"", b"")


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
