"""A run's statement in the studio: what `nestegg statement` writes, without writing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestegg.configuration.config import load_config
from nestegg.runs import start_run
from nestegg.runs.statement import make_statement
from tests.runs.test_runs import config
from tests.studio.conftest import client_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    start_run(load_config(config(folder, key="rounds", line="rounds = 2")), folder / "monday")
    return folder


def test_it_is_the_statement_of_the_run_and_nothing_runs_on_it(folder: Path) -> None:
    before = sorted((folder / "monday").glob("*"))
    answer = client_of(folder).get("/statement?run=monday")
    assert make_statement(folder / "monday").digest in answer.text
    policy = answer.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "allow-scripts" not in policy
    assert sorted((folder / "monday").glob("*")) == before


def test_it_can_be_had_as_a_pdf(folder: Path) -> None:
    pytest.importorskip("typst")
    answer = client_of(folder).get("/statement.pdf?run=monday")
    assert answer.content.startswith(b"%PDF-")
    assert answer.headers["content-type"] == "application/pdf"


@pytest.mark.parametrize("run", ["", "..", "../monday", "/etc", "monday/private", "nobody", "monday\0", "m" * 5_000])
def test_where_there_is_no_run_there_is_a_sentence(folder: Path, run: str) -> None:
    answer = client_of(folder).get("/statement", params={"run": run})
    assert answer.status_code == 422
    assert answer.json()["wrong"][""].endswith(".")
    assert str(folder.parent) not in answer.text.replace(str(folder), "")
