"""What a run's folder says to whoever gets it: nothing un-noised about clients, "not for release" where it belongs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from nestegg import Budget, Group, InputError, LocalTraining, StoppedError, plan
from nestegg.configuration.config import load_config
from nestegg.data import load_dataset
from nestegg.ledger import Ledger
from nestegg.report.pages import Pages
from nestegg.runs import start_run
from nestegg.training import RoundReport, dense, kernel
from tests.callbacks import EachRound
from tests.conftest import Run
from tests.federations import DENSE, ENGINES, assembled, trained
from tests.runs.test_runs import config

SECRET = ("seconds", "cohort", "broken", "label")


def releasable(folder: Path) -> list[Path]:
    """The files of a run that may be released."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return [path for path in files if "private" not in path.relative_to(folder).parts]


def run_of(tmp_path: Path, reproducible: bool, name: str = "run") -> Path:
    line = f"reproducible = {str(reproducible).lower()}"
    start_run(load_config(config(tmp_path, key="reproducible", line=line)), tmp_path / name, pages=Pages(as_files=True))
    return tmp_path / name


def test_every_file_of_a_reproducible_run_says_that_it_is_not_for_release(tmp_path: Path) -> None:
    folder = run_of(tmp_path, reproducible=True)
    files = [*releasable(folder), *(folder / "private").glob("*.json*")]
    assert len(files) > 16
    for file in files:
        if file.suffix == ".png":  # drawn from the same definition as the picture beside it
            file = file.with_suffix(".svg")
        assert b"not for release" in file.read_bytes(), file.name
    assert all("not for release" in line for line in (folder / "rounds.jsonl").read_text().splitlines())
    with Ledger(folder / "private" / "ledger.db", read_only=True) as ledger:
        (state,) = ledger.history().runs.values()
        assert "not for release" in str(state.note)
        assert all("not for release" in charge["note"] for charge in ledger.charges())


def test_the_releasable_part_of_a_run_tells_nothing_un_noised(tmp_path: Path) -> None:
    folder = run_of(tmp_path, reproducible=False)
    for file in releasable(folder):
        assert b"not for release" not in file.read_bytes(), file.name
        assert "label" not in file.name
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for content in (summary, *lines, load_file_facts(folder / "checkpoint.safetensors")):
        assert not [key for key in content if any(word in key for word in SECRET)]
    assert "How different are the clients" not in (folder / "report.html").read_text()
    assert (folder / "private").stat().st_mode & 0o077 == 0
    timings = [json.loads(line) for line in (folder / "private" / "timings.jsonl").read_text().splitlines()]
    assert [timing["round"] for timing in timings] == [1, 2, 3, 4, 5, 6]


def load_file_facts(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    facts = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["nestegg"])
    return {**facts, **json.loads(facts["line"])}


def stopped(tmp_path: Path) -> Path:
    """A run that stopped after its third round."""

    def stop(report: RoundReport) -> None:
        if report.round == 3:
            raise ZeroDivisionError

    with pytest.raises(StoppedError):
        start_run(load_config(config(tmp_path)), tmp_path / "stopped", callbacks=[EachRound(stop)])
    return tmp_path / "stopped"


def test_a_run_does_not_go_on_with_other_data(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, original = stopped(tmp_path), load_dataset

    def changed(*arguments: Any) -> Any:
        data = original(*arguments)
        data.train_x[7] += 0.01
        return data

    monkeypatch.setattr("nestegg.data.load_dataset", changed)
    before = (folder / "rounds.jsonl").read_bytes()
    result = run("run", "--resume", folder)
    assert result.code == 2
    assert "the data or the initial model is not what the run in" in result.err
    assert (folder / "rounds.jsonl").read_bytes() == before
    monkeypatch.setattr("nestegg.data.load_dataset", original)
    assert run("run", "--resume", folder).code == 0


@pytest.mark.slow
def test_a_fingerprint_is_keyed_so_that_nobody_can_try_data_against_it(tmp_path: Path) -> None:
    first, second = (run_of(tmp_path, True, name) / "private" / "fingerprint.json" for name in "ab")
    assert json.loads(first.read_text())["digest"] != json.loads(second.read_text())["digest"]


def test_a_run_begun_in_floating_point_is_refused_with_the_reason(run: Run, tmp_path: Path) -> None:
    folder = stopped(tmp_path)
    checkpoint = folder / "checkpoint.safetensors"
    content = checkpoint.read_bytes()
    size = int.from_bytes(content[:8], "little")
    facts = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["nestegg"])
    del facts["arithmetic"]
    tensors = load_file(checkpoint)
    save_file(tensors, checkpoint, {"nestegg": json.dumps(facts)})
    before = (folder / "private" / "ledger.db").read_bytes()
    result = run("run", "--resume", folder)
    assert result.code == 2
    assert "begun by an earlier nestegg, whose noise was in floating point" in result.err
    assert "its last 3 rounds must be run by that version" in result.err
    assert (folder / "private" / "ledger.db").read_bytes() == before  # that version must still be able to


def test_a_run_without_its_fingerprint_does_not_go_on(run: Run, tmp_path: Path) -> None:
    folder = stopped(tmp_path)
    (folder / "private" / "fingerprint.json").unlink()
    result = run("run", "--resume", folder)
    assert (result.code, "fingerprint.json is missing" in result.err) == (2, True)


def test_times_of_files_tell_nothing_and_a_complete_run_is_not_written_again(run: Run, tmp_path: Path) -> None:
    folder = run_of(tmp_path, reproducible=False)
    before = {path: path.stat() for path in releasable(folder)}
    assert len({status.st_mtime for status in before.values()}) == 1
    assert all(status.st_mtime % 86400 == 0 for status in before.values())
    result = run("run", "--resume", folder)
    assert result.code == 0
    assert " s, engine" not in result.out
    assert {path: path.stat().st_ino for path in releasable(folder)} == {p: s.st_ino for p, s in before.items()}


class Remembering(nn.Module):
    """A layer that keeps something of what it has seen where torch does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.seen = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = 0.5 * self.seen + x.mean(dim=0).detach()
        if (x > 100.0).any():
            self.register_buffer(f"cache{len(self._buffers)}", x)
        outputs: torch.Tensor = self.layer(x - self.seen)
        return outputs


def test_what_a_model_remembers_of_one_client_never_reaches_the_next() -> None:
    made = plan([Group("a", 4, Budget(8.0))], rounds=2, spending_rate=1.0)
    torch.manual_seed(0)
    model, rng = Remembering(), torch.Generator().manual_seed(1)
    clients = [(torch.randn(5, 4, generator=rng) * 30 * i, torch.tensor([0, 1, 0, 1, 1])) for i in range(1, 5)]
    world = assembled(made, model, clients, local=LocalTraining(epochs=3), engine="loop")
    start = world.start().model
    alone = [world.engine.train_block(start, [client], 1, 0.1).clone() for client in (2, 0)]
    in_company = [world.engine.train_block(start, [client], 1, 0.1).clone() for client in (3, 1, 2, 0)][2:]
    assert all(torch.equal(a, b) for a, b in zip(alone, in_company, strict=True))


def test_code_that_fails_for_everybody_is_refused_before_anybody_pays() -> None:
    made = plan([Group("a", 4, Budget(8.0))], rounds=2)

    def wrong(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        raise TypeError("no such thing")

    clients = [(torch.ones(3, 4), torch.tensor([0, 1, 0]))] * 4
    with pytest.raises(InputError, match="model and loss cannot be trained on zeros: TypeError: no such thing"):
        trained(made, nn.Linear(4, 2), clients, loss=wrong)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_client_without_data_contributes_zero(engine: str) -> None:
    """That is the other world of the promise: enrolled, and its data not there."""
    made = plan([Group("a", 3, Budget(8.0))], rounds=2, spending_rate=1.0)
    full = (torch.ones(3, 4), torch.tensor([0, 1, 0]))
    clients = [full, (torch.empty(0, 4), torch.empty(0, dtype=torch.long)), full]
    model = nn.Sequential(nn.Linear(4, 2))
    ends: list[Any] = [
        trained(made, model, data, reproducible=True, engine=engine, workers=1)[0]
        for data in (clients, [full, (torch.full((3, 4), torch.nan), full[1]), full])
    ]
    assert torch.equal(ends[0][0].weight, ends[1][0].weight)


@pytest.mark.parametrize("engine", DENSE[:1], indirect=True)
def test_a_client_too_large_for_memory_counts_as_zero(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan([Group("a", 5, Budget(8.0))], rounds=2, spending_rate=1.0)
    clients = [(torch.ones(3 + 10 * (i == 2), 4), torch.zeros(3 + 10 * (i == 2), dtype=torch.long)) for i in range(5)]
    real = kernel.train

    def small_memory(*arguments: Any) -> torch.Tensor:
        if max(arguments[3].sizes) > 10:
            raise MemoryError("not enough memory to train a client")
        return real(*arguments)

    monkeypatch.setattr(dense, "train", small_memory)
    _, reports = trained(made, nn.Sequential(nn.Linear(4, 2)), clients, reproducible=True, engine=engine, workers=1)
    assert [report.simulation_only_broken_updates for report in reports] == [1, 1]


class Picky(nn.Module):
    """A model that cannot bear a marked sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x > 100.0).any():
            raise RuntimeError("a secret of this client")
        output: torch.Tensor = self.layer(x)
        return output


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_whose_training_raises_counts_as_zero_and_stops_nothing(workers: int) -> None:
    """Stopping would tell that it was sampled, and a retried round is free."""
    made = plan([Group("a", 6, Budget(8.0))], rounds=3, spending_rate=1.0)
    good = [(torch.ones(3, 4) * i, torch.tensor([0, 1, 0])) for i in range(6)]
    raising = [*good[:5], (torch.full((3, 4), 1000.0), torch.tensor([0, 1, 0]))]
    silent = [*good[:5], (torch.full((3, 4), float("nan")), torch.tensor([0, 1, 0]))]
    torch.manual_seed(0)
    model, local = Picky(), LocalTraining(epochs=1)
    ends, reports = zip(
        *(
            trained(made, model, clients, local=local, reproducible=True, workers=workers)
            for clients in (raising, silent)
        ),
        strict=True,
    )
    assert torch.equal(ends[0].layer.weight, ends[1].layer.weight)
    assert [report.simulation_only_broken_updates for report in reports[0]] == [1, 1, 1]
    _, secret = trained(made, model, raising, local=local, workers=workers)
    assert secret[0].simulation_only_broken_updates is None
    assert secret[0].simulation_only_cohort_size is None
