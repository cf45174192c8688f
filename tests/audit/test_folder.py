"""The audit of a run's folder: what is there may be released, follows from the plan, and tells of nobody's data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import nestegg
from nestegg import Budget, Federation, Group, InputError, Mechanics, Plan, Randomness
from nestegg.audit import audit
from nestegg.audit.folder import folder_findings
from nestegg.audit.twins import twin_runs
from nestegg.runs.folder import RunFolder, packed
from nestegg.runs.task import Task
from nestegg.runs.telling import say

ROUNDS = 4
Planted = Callable[[Path], object]


def small_plan(**options: Any) -> Plan:
    groups = [Group("a", 4, Budget(8.0)), Group("b", 3, Budget(20.0), saving_rate=0.5)]
    return nestegg.plan(groups, rounds=ROUNDS, **options)


def federation(reproducible: bool = False, model: nn.Module | None = None, **options: Any) -> Federation:
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(8, 4, generator=generator), torch.arange(8) % 2) for _ in range(7)]
    mechanics = Mechanics(randomness=Randomness(3, reproducible), colluders=2)
    return Federation(
        small_plan(**options), model or nn.Sequential(nn.Linear(4, 2)), data, mechanics=mechanics, test=data[0]
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A run that is for release, and one that is not."""
    place = tmp_path_factory.mktemp("runs")
    for reproducible in (False, True):
        nestegg.run(federation(reproducible), place / str(reproducible))
    return {reproducible: place / str(reproducible) for reproducible in (False, True)}


def refuted(folder: Path) -> set[str]:
    return {one.attack for one in folder_findings(folder) if one.refutes}


@pytest.mark.parametrize("reproducible", [False, True])
def test_a_run_passes(runs: dict[bool, Path], reproducible: bool) -> None:
    found = folder_findings(runs[reproducible])
    assert [one.says for one in found if one.refutes] == []
    attacks = {"files", "fields", "not for release", "private part", "plan file", "rounds"}
    assert {one.attack for one in found} == attacks
    assert {one.arm for one in found} == {"run"}


@pytest.mark.slow
def test_a_run_with_a_learnt_clip_norm_and_one_without_noise_pass(tmp_path: Path) -> None:
    for method in ("adaptive-clipping", "fedavg"):
        nestegg.run(federation(method=method, clip_norm=0.5), tmp_path / method)
        assert refuted(tmp_path / method) == set()


def change(folder: Path, file: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change JSON in a file, in each of its lines."""
    lines = (folder / file).read_text().splitlines() if file.endswith("l") else [(folder / file).read_text()]
    contents = [json.loads(line) for line in lines]
    for content in contents:
        edit(content)
    (folder / file).write_text("".join(json.dumps(content) + "\n" for content in contents))


def change_checkpoint(folder: Path, **facts: Any) -> None:
    saved = RunFolder(folder).load_checkpoint()
    assert saved is not None
    (folder / "checkpoint.safetensors").write_bytes(packed(saved.tensors, {**saved.facts, **facts}))


FOR_RELEASE: dict[str, tuple[str, Planted]] = {
    "a file of label counts": ("files", lambda run: (run / "label-counts.csv").write_text("0,3")),
    "a picture of labels": ("files", lambda run: (run / "simulation-only-labels.svg").write_text("<svg/>")),
    "timings outside": ("files", lambda run: shutil.copy(run / "private" / "timings.jsonl", run)),
    "a folder": ("files", lambda run: shutil.copytree(run / "private", run / "old")),
    "labels in the summary": ("fields", lambda run: change(run, "summary.json", lambda one: one.update(labels=[1]))),
    "labels of a group": (
        "fields",
        lambda run: change(run, "summary.json", lambda one: one["groups"][0].update(labels=[1])),
    ),
    "cohort sizes": (
        "fields",
        lambda run: change(run, "rounds.jsonl", lambda one: one.update(simulation_only_cohort_size=3)),
    ),
    "seconds": ("fields", lambda run: change_checkpoint(run, seconds=1.0)),
    "more values": ("fields", lambda run: change(run, "run.json", lambda one: one["values"].update(samples=[1]))),
    "a chart of labels in the page": (
        "fields",
        lambda run: (run / "report.html").write_text("Clients (simulation only)"),
    ),
    "something after a torn line": (
        "fields",
        lambda run: (run / "rounds.jsonl").write_text(f"{{\n{(run / 'rounds.jsonl').read_text()}"),
    ),
    "a stamp": ("not for release", lambda run: change(run, "rounds.jsonl", lambda one: one.update(note=STAMP))),
    "an open private part": ("private part", lambda run: (run / "private").chmod(0o755)),
    "another plan": ("plan file", lambda run: change(run, "plan.json", lambda one: one.update(spending_rate=0.8))),
    "a checkpoint of another plan": ("plan file", lambda run: change_checkpoint(run, plan="0" * 64)),
    "less noise": ("rounds", lambda run: change(run, "rounds.jsonl", lambda one: one.update(noise_std=0.1))),
    "another norm": ("rounds", lambda run: change(run, "rounds.jsonl", lambda one: one.update(clip_norm=1.1))),
    "other spending": (
        "rounds",
        lambda run: change(run, "rounds.jsonl", lambda one: one["epsilon_spent"].update(a=0.1)),
    ),
    "too many rounds": ("rounds", lambda run: change(run, "rounds.jsonl", lambda one: one.update(round=9))),
}
STAMP = "reproducible run: its noise follows from the seed, so it is not for release"


@pytest.mark.parametrize("planted", FOR_RELEASE)
def test_what_must_not_be_in_a_run_for_release_is_noticed(runs: dict[bool, Path], tmp_path: Path, planted: str) -> None:
    attack, plant = FOR_RELEASE[planted]
    run = Path(shutil.copytree(runs[False], tmp_path / "run"))
    plant(run)
    assert refuted(run) == {attack}


@pytest.mark.parametrize("file", ["summary.json", "rounds.jsonl", "plan.json", "run.json", "private/timings.jsonl"])
def test_a_missing_not_for_release_is_noticed(runs: dict[bool, Path], tmp_path: Path, file: str) -> None:
    run = Path(shutil.copytree(runs[True], tmp_path / "run"))
    change(run, file, lambda one: one.pop("note"))
    assert refuted(run) == {"not for release"}


def test_a_model_a_page_and_a_ledger_must_say_it_too(runs: dict[bool, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[True], tmp_path / "run"))
    (run / "model.safetensors").write_bytes(packed(load_file(run / "model.safetensors"), {}))
    (run / "report.html").write_text("<html></html>")
    (says,) = [one.says for one in folder_findings(run) if one.refutes]
    assert says.startswith("model.safetensors and 1 others are not marked 'not for release'")
    other = Path(shutil.copytree(runs[True], tmp_path / "other"))
    shutil.copy(runs[False] / "private" / "ledger.db", other / "private")
    (says,) = [one.says for one in folder_findings(other) if one.refutes]
    assert says.startswith("private/ledger.db is not marked 'not for release'")


def test_another_version_or_processor_is_said_and_refutes_nothing(runs: dict[bool, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[False], tmp_path / "run"))
    change_checkpoint(run, instruction_set="vax", arithmetic=3, novelty=1)
    change(run, "rounds.jsonl", lambda one: one.update(noise_std=0.1, novelty=2))
    found = folder_findings(run)
    assert not [one for one in found if one.refutes]
    assert all("another version of nestegg and on another processor (vax; here " in one.says for one in found)
    change(run, "rounds.jsonl", lambda one: one.update(label_counts=[1]))
    assert refuted(run) == {"fields"}


def test_a_run_that_was_planned_anew_passes(runs: dict[bool, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[False], tmp_path / "run"))
    before = RunFolder(run).plan()
    rows = tuple(replace(row, epsilon_spent=tuple(2 * one for one in row.epsilon_spent)) for row in before.groups)
    RunFolder(run).put_in_force(replace(before, groups=rows))
    assert refuted(run) == set()


def test_what_is_no_run_or_damaged_is_refused_in_a_sentence(runs: dict[bool, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run"):
        folder_findings(tmp_path)
    run = Path(shutil.copytree(runs[False], tmp_path / "run"))
    (run / "summary.json").write_text("{")
    with pytest.raises(InputError, match=r"summary\.json cannot be read"):
        folder_findings(run)


def test_an_audit_takes_a_run(runs: dict[bool, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[False], tmp_path / "run"))
    (run / "label-counts.csv").write_text("0,3")
    made = audit(small_plan(), seconds=0.2, folder=run)
    assert [(one.finding.arm, one.finding.attack) for one in made.refutations] == [("run", "files")]
    (run / "label-counts.csv").unlink()
    (run / "audit.json").write_text(json.dumps(made.to_dict()))  # an audit may lie there, whatever it has found
    assert refuted(run) == set()


def test_twin_runs_of_the_code_as_it_is_are_the_same(tmp_path: Path) -> None:
    found = twin_runs(federation())
    attacks = ("twin runs", "times of files", "a run for release")
    assert [(one.attack, one.refutes) for one in found] == [(attack, False) for attack in attacks]
    assert found[0].trials >= 8  # files, and what was said


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.table(x).mean(dim=1))
        return out


def tokens() -> Federation:
    return Federation(small_plan(), Tokens(), [(torch.randint(5, (8, 4)), torch.arange(8) % 2) for _ in range(7)])


@pytest.mark.slow
def test_twin_runs_of_tokens() -> None:
    assert not any(one.refutes for one in twin_runs(tokens()))


def test_tokens_are_always_numbers_so_nobody_is_expected_to_fail_on_them() -> None:
    made = audit(tokens(), seconds=0.5)
    assert not made.refutations
    attacks = [one.finding.attack for one in made.findings if one.finding.arm == "your model"]
    assert "clients whose data cannot be read" in attacks
    assert "clients with data that is no number" not in attacks


class Fearless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(torch.nan_to_num(x) + 1.0)
        return out


def test_a_model_on_which_nothing_counts_as_zero_has_no_twins() -> None:
    with pytest.raises(InputError, match="no data of a canary counts as zero"):
        twin_runs(federation(model=Fearless()))


def test_runs_of_very_many_clients_are_not_tried() -> None:
    many = nestegg.plan([Group("all", 10_001, Budget(8.0))], rounds=2)
    clients = [(torch.ones(1, 4), torch.zeros(1, dtype=torch.long))] * 10_001
    with pytest.raises(InputError, match="the plan has 10001 clients; runs of up to 10000 are tried"):
        twin_runs(Federation(many, nn.Sequential(nn.Linear(4, 2)), clients))


def labels(task: Task) -> list[Any]:
    return [task.federation.clients.samples(client)[1].tolist() for client in range(task.plan.clients)]


def labels_in_the_summary(patch: pytest.MonkeyPatch) -> None:
    real = Task._summary
    patch.setattr(Task, "_summary", lambda self, *about: {**real(self, *about), "labels": labels(self)})


def samples_in_the_page(patch: pytest.MonkeyPatch) -> None:
    real = Task._summary
    patch.setattr(
        Task, "_summary", lambda self, *about: {**real(self, *about), "dataset": f"{sum(map(len, labels(self)))} rows"}
    )


def said_while_it_runs(patch: pytest.MonkeyPatch) -> None:
    real = Task.train

    def talking(self: Task, *about: Any, **options: Any) -> dict[str, Any]:
        say([f"{max(map(len, labels(self)))} samples at most"])
        return real(self, *about, **options)

    patch.setattr(Task, "train", talking)


def times_of_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunFolder, "hide_times", lambda self: None)


def size_of_the_cohort(patch: pytest.MonkeyPatch) -> None:
    real = Federation.round

    def telling(self: Federation, *about: Any) -> Any:
        state, report = real(self, *about)
        return state, replace(report, simulation_only_cohort_size=5)

    patch.setattr(Federation, "round", telling)


FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    labels_in_the_summary: {"twin runs", "a run for release"},
    times_of_files: {"times of files"},
    size_of_the_cohort: {"a run for release"},
}


@pytest.mark.parametrize(
    "plant",
    [
        labels_in_the_summary,
        size_of_the_cohort,
        pytest.param(samples_in_the_page, marks=pytest.mark.slow),
        pytest.param(said_while_it_runs, marks=pytest.mark.slow),
        times_of_files,
    ],
    ids=lambda plant: plant.__name__,
)
def test_twin_runs_notice_what_tells_of_data(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = {one.attack for one in twin_runs(federation()) if one.refutes}
    assert found == FOUND_BY.get(plant, {"twin runs"})
