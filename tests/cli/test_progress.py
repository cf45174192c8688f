"""Whoever waits for an index is shown how far it is, and nobody else hears of it."""

from __future__ import annotations

import logging
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from rich.status import Status

import nestegg.data.parquet
from nestegg.cli.progress import hearing, watching_index
from nestegg.cli.rounds import RoundProgress
from nestegg.data import from_parquet
from tests.conftest import Run

LOG = logging.getLogger("nestegg.index")
CONFIG = """
[federation]
dataset = "people[red].parquet"
client_column = "user"
target_column = "label"
classes = 2
[training]
rounds = 1
[privacy]
method = "fedavg"
[[privacy.groups]]
name = "all"
share = 1.0
epsilon = 9.0
"""


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is not sorted, in batches of which every one is told of."""
    file = tmp_path / "people[red].parquet"
    users = [f"user {i % 3}" for i in range(90)]
    pq.write_table(pa.table({"user": users, "a": np.arange(90.0), "label": [i % 2 for i in range(90)]}), file)
    monkeypatch.setattr(nestegg.data.parquet, "_EVERY", 0.0)
    monkeypatch.setattr(nestegg.data.arrow, "BATCH", 30)
    return file


def test_a_logger_tells_how_far_an_index_is(people: Path) -> None:
    shown, heard = list[str](), list[str]()
    with watching_index(shown.append), hearing(heard.append):
        from_parquet(people, client="user", target="label")
    read = [f"people\\[red].parquet is read for its index: {share} % of 90 rows" for share in (33, 67, 100)]
    assert shown == [*read, "people\\[red].parquet is sorted by client: 100 % of 90 rows"]
    assert heard == []
    assert (LOG.level, LOG.handlers) == (logging.NOTSET, [])
    with watching_index(shown.append):
        from_parquet(people, client="user", target="label")  # it is there
    assert len(shown) == 4


@pytest.mark.parametrize("command", ["plan", "compare"])
def test_commands_show_it(command: str, people: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, update = list[str](), Status.update

    def noted(self: Status, status: str) -> None:
        shown.append(status)
        update(self, status)

    monkeypatch.setattr(Status, "update", noted)
    (people.parent / "config.toml").write_text(CONFIG)
    done = run(command, people.parent / "config.toml")
    assert done.code == (0 if command == "plan" else 2)  # there is no test data to compare on
    assert "sorted by client" in "".join(shown)
    assert "sorted by client" not in done.err + done.out


def test_a_run_shows_it_beside_its_bar(people: Path) -> None:
    with RoundProgress(quiet=False, total=1) as display:
        from_parquet(people, client="user", target="label")
    text = StringIO()
    Console(file=text, width=160).print(display.progress.get_renderable())
    assert "people[red].parquet is sorted by client: 100 % of 90 rows" in text.getvalue()
