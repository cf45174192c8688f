"""docs/flower.md and its tutorial: the app can be copied as it is, and every flag is one that Flower has."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from .conftest import ROOT
from .pages import blocks_of, commands_in, file_of

PAGES = ("flower.md", "tutorials/flower.md")
PROGRAMS = ("flower-superlink", "flower-supernode", "flwr supernode register", "flwr run")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's app as somebody copies it, with the example's own task beside it."""
    for block in blocks_of("flower.md"):
        if name := file_of(block):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(block.text, encoding="utf-8")
    shutil.copy(ROOT / "examples" / "flower" / "digits_app" / "task.py", tmp_path / "app" / "digits_app")
    monkeypatch.syspath_prepend(tmp_path / "app")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "digits_app"]:
        del sys.modules[name]


def test_the_app_of_the_page_is_complete(app: Path) -> None:
    project = tomllib.loads((app / "app" / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == []
    for name, kind in {"serverapp": ServerApp, "clientapp": ClientApp}.items():
        module, _, attribute = project["tool"]["flwr"]["app"]["components"][name].partition(":")
        assert isinstance(getattr(importlib.import_module(module), attribute), kind)
    for file in ("server_app.py", "client_app.py"):  # no name is left for the reader to find
        found = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--select", "F", app / "app" / "digits_app" / file]
        )
        assert found.returncode == 0
    assert tomllib.loads((app / "flwr" / "config.toml").read_text())["superlink"]["default"] == "here"


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_flag_is_one_of_flowers_own(program: str) -> None:
    commands = [line for page in PAGES for line in commands_of(page) if line.startswith(program)]
    assert len(commands) >= len(PAGES)
    first, *rest = program.split()
    said = subprocess.run([Path(sys.executable).with_name(first), *rest, "--help"], capture_output=True, text=True)
    flags = {flag for line in commands for flag in re.findall(r"(?<= )--[\w-]+", line)}
    assert flags <= set(re.findall(r"--[\w-]+", said.stdout)), said.stderr


def test_both_pages_keep_flower_from_installing_anything() -> None:
    for page in PAGES:
        (superlink,) = [line for line in commands_of(page) if line.startswith("flower-superlink")]
        assert {"--disable-runtime-dependency-installation", "--enable-supernode-auth"} <= set(superlink.split())


def commands_of(page: str) -> Iterator[str]:
    """The lines of a page's console blocks, each command on one."""
    for block in blocks_of(page):
        if block.kind == "console":
            yield from commands_in(block.text)
