"""`nestegg audit`, as a user meets it: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.planted import relabelled

import nestegg
from nestegg.audit import Clock
from nestegg.cli import audit as command
from nestegg.planning import Plan
from tests.conftest import Run

CONFIG = """
[federation]
dataset = "digits"
clients = 12
[training]
rounds = 3
local_epochs = 1
reproducible = {reproducible}
[[privacy.groups]]
name = "strict"
share = 0.5
epsilon = 5.0
[[privacy.groups]]
name = "open"
share = 0.5
epsilon = 10.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Clock, "until", lambda self, share, tell: lambda passes: not self.stopped and passes < 30)
    (tmp_path / "mine.toml").write_text(CONFIG.format(reproducible="true"))
    return tmp_path


def made() -> Plan:
    groups = [nestegg.Group(name, 6, nestegg.Budget(e)) for name, e in (("strict", 5.0), ("open", 10.0))]
    return nestegg.plan(groups, rounds=3, method="idp-fedavg")


def test_a_configuration_is_attacked_and_the_findings_are_shown_and_written(run: Run, folder: Path) -> None:
    result = run("audit", "mine.toml", "--seconds", "2")
    assert result.code == 0, result.err
    for words in ("strict", "claimed ε", "none succeeded", "one false alarm in 1000", "Passing proves nothing"):
        assert words in result.out
    content = json.loads((folder / "mine-audit" / "audit.json").read_text())
    assert not content["refuted"]
    assert {one["arm"] for one in content["findings"]} >= {"plan", "crafted network", "your model"}
    assert {"plan", "engine", "instruction_set", "version", "processor", "caveat"} <= set(content)
    page = (folder / "mine-audit" / "audit.html").read_text()
    assert "Can anybody tell whether a client of strict is there?" in page
    assert not re.search(r'(src|href)="http', page)  # one file, no network


def test_a_plan_that_breaks_its_promise_ends_with_exit_code_1(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nestegg.audit.subjects.load_plan", lambda path: relabelled(made()))
    nestegg.save_plan(made(), folder / "plan.json")
    result = run("audit", "plan.json", "--seconds", "1")
    assert result.code == 1
    assert "the promise is refuted by budgets (plan)" in result.err
    assert json.loads((folder / "plan-audit" / "audit.json").read_text())["refuted"]


def test_a_runs_audit_is_kept_with_it_and_in_its_report(run: Run, folder: Path) -> None:
    assert run("run", "mine.toml", "--out", "monday").code == 0
    result = run("audit", "monday", "--seconds", "1", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["note"].endswith("not for release")
    report = (folder / "monday" / "report.html").read_text()
    assert report.count('<section id="audit">') == 1
    assert "not refuted" in report
    run("audit", "monday", "--seconds", "1")
    assert (folder / "monday" / "report.html").read_text().count('<section id="audit">') == 1
    (folder / "monday" / "statement.json.sig").touch()
    before = (folder / "monday" / "audit.json").read_bytes()
    refused = run("audit", "monday", "--seconds", "1")
    assert (refused.code, "has a signed statement, which names its audit" in refused.err) == (2, True)
    assert run("audit", "monday", "--seconds", "1", "--out", "another").code == 0
    assert (folder / "monday" / "audit.json").read_bytes() == before
    (folder / "monday" / "report.html").unlink()
    assert run("run", "--resume", "monday").code == 0  # the report is written anew, with the audit
    assert "not refuted" in (folder / "monday" / "report.html").read_text()
    (folder / "monday" / "audit.json").write_text("{")
    (folder / "monday" / "report.html").unlink()
    assert run("run", "--resume", "monday").code == 0
    assert '<section id="audit">' not in (folder / "monday" / "report.html").read_text()


def test_a_run_from_python_is_attacked_by_its_own_mechanics(run: Run, folder: Path) -> None:
    data = [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(12)]
    federation = nestegg.Federation(
        made(),
        torch.nn.Linear(3, 2),
        data,
        mechanics=nestegg.Mechanics(clip_unit="update", colluders=2),
        local=nestegg.LocalTraining(schedule=lambda t, rounds: 1.0 / t),
    )
    nestegg.run(federation, folder / "own")
    result = run("audit", "own", "--seconds", "1")
    assert result.code == 0, result.err
    assert "it is a run from Python" in result.out


def test_an_interruption_keeps_what_was_found(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def interrupting(quiet: bool) -> Iterator[Callable[[str, float], None]]:
        def tell(what: str, share: float) -> None:
            if what == "your model, exactly":
                signal.raise_signal(signal.SIGINT)

        yield tell

    monkeypatch.setattr(command, "_progress", interrupting)
    result = run("audit", "mine.toml", "--seconds", "1000")
    assert result.code == 0, result.err
    assert "the audit was interrupted" in result.out
    assert json.loads((folder / "mine-audit" / "audit.json").read_text())["interrupted"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["audit", "nowhere.toml"], "nowhere.toml"),
        (["audit", "."], "is not a run"),
        (["audit", "mine.toml", "--seconds", "0"], "seconds = 0.0 must be a finite number above 0"),
        (["audit", "mine.toml", "--seconds", "nan"], "seconds = nan must be a finite number above 0"),
        (["audit", "mine.toml", "--seconds", "inf"], "seconds = inf must be a finite number above 0"),
        (["audit", "mine.toml", "--seconds", "5", "--thorough"], "--thorough takes 600 seconds: --seconds 5 must be"),
        (["audit", "mine.toml", "--seconds", "1", "--out", "mine.toml"], "--out mine.toml must be a folder"),
        (["audit", "mine.toml", "--groups", "nobody", "--seconds", "1"], "groups = 'nobody' must be among"),
        (["audit", "none.json"], "no noise: it promises nothing"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    run: Run, folder: Path, arguments: list[str], sentence: str
) -> None:
    groups = [replace(row.group) for row in made().groups]
    nestegg.save_plan(nestegg.plan(groups, rounds=2, method="fedavg"), folder / "none.json")
    before = sorted(folder.rglob("*"))
    result = run(*arguments)
    assert result.code == 2
    assert sentence in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert sorted(folder.rglob("*")) == before


def test_without_a_subject_this_installation_is_attacked(run: Run, folder: Path) -> None:
    result = run("audit", "--seconds", "1")
    assert result.code == 0, result.err
    assert "a model of one's own: none was given" in result.out
    assert (folder / "installation-audit" / "audit.html").is_file()
