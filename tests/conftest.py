"""The paper's Fashion-MNIST federation, which most tests of plans start from, and ten clients to train."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings

from nestegg import Budget, Charge, Group, Plan, SpendAsYouGo, plan
from nestegg.cli import main
from nestegg.data import load_dataset, partition
from nestegg.training import kernel

from .browser import chromium_browser
from .examples import slow
from .postgres import Server, find_binaries

# A gate must not depend on luck: there hypothesis draws the same examples every time. Elsewhere it hunts.
# Who waits for `make check` gets few examples, the same ones every time.
settings.register_profile("gate", derandomize=True)
settings.register_profile("quick", derandomize=True, max_examples=20)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("gate" if os.environ.get("CI") else "default"))

EXAMPLE = Path(__file__).parent.parent / "examples" / "fashion-mnist.toml"

GROUPS = (
    Group("strict", 34, Budget(10.0), saving_rate=0.5, transition=13),
    Group("middle", 43, Budget(20.0), saving_rate=0.6, transition=13),
    Group("open", 23, Budget(30.0), saving_rate=0.7, transition=13),
)
ANY_LENGTH = tuple(replace(group, transition=None) for group in GROUPS)  # saving until the middle of any training


def with_history(groups: Sequence[Group], history: Mapping[str, Sequence[Charge]]) -> list[Group]:
    """The groups with what they have already spent, by name."""
    return [replace(group, already_spent=tuple(history.get(group.name, ()))) for group in groups]


@pytest.fixture(scope="session")
def exact() -> Plan:
    return plan(GROUPS, rounds=25, clip_norm=250.0)


@pytest.fixture(scope="session")
def paper() -> Plan:
    return plan(GROUPS, rounds=25, method=SpendAsYouGo("paper"), clip_norm=250.0)


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["nestegg", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Result(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server for the whole session, where there is one to start."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL here: neither initdb on the PATH nor Debian's package")
    with Server(binaries) as server:
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser, where there is one; see `tests.browser.visit`."""
    with chromium_browser() as browser:
        yield browser


@pytest.fixture(params=["sqlite", *slow("postgresql")])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(scope="module")
def clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ten clients of digits, for tests of training."""
    data = load_dataset("digits")
    parts = partition(data.train_y[:400].numpy(), 10, "dirichlet", 0.5, np.random.default_rng(3))
    return [(data.train_x[part], data.train_y[part]) for part in parts]


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine: loop, or the dense one in an instruction set of this processor."""
    if request.param == "loop":
        return "loop"
    monkeypatch.setenv(kernel.VARIABLE, request.param)
    return "dense"
