"""What a run began with: noted before anything else is written, and compared when it goes on."""

from __future__ import annotations

import json
import secrets
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import TensorDataset

import nestegg
from nestegg import Federation, InputError, Mechanics, Performance, Randomness
from nestegg.configuration.config import load_config
from nestegg.data import from_folder, without
from nestegg.data.tables import ClientDigests
from nestegg.ledger import Ledger
from nestegg.runs import private, resume_run, start_run
from nestegg.training import Callback, RoundReport, State
from tests.conftest import Run
from tests.examples import slow
from tests.own_federation import NAMES, Slope, make_data, make_plan


class Table:
    """A source of one's own, whose fingerprint may fail."""

    names = NAMES
    sizes = None

    def __init__(self, error: BaseException | None = None) -> None:
        self.data, self.error = make_data(), error

    def load(self, name: str) -> Any:
        return self.data[name]

    def fingerprint(self) -> bytes:
        if self.error is not None:
            raise self.error
        return b"table, version 1"


def federation(clients: Any, **changes: Any) -> Federation:
    torch.manual_seed(3)
    mechanics = Mechanics(randomness=Randomness(3, reproducible=True))
    plan = make_plan(**changes)
    return Federation(plan, Slope(), clients, mechanics=mechanics, performance=Performance(workers=1))


@pytest.mark.parametrize("error", [OSError("the disk is gone"), SystemExit("the disk is gone")])
def test_a_run_whose_fingerprint_fails_writes_nothing(error: BaseException, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    nestegg.run(federation(Table(), accountant="renyi"), tmp_path / "first", ledger=ledger)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    for name, url in (("second", ledger), ("third", None), ("fourth", tmp_path / "new.db")):
        with pytest.raises(InputError, match=f"gives no fingerprint: {type(error).__name__}: the disk is gone"):
            nestegg.run(federation(Table(error), accountant="renyi"), tmp_path / name, ledger=url)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    with Ledger(ledger, read_only=True) as books:
        assert len(books.account(NAMES[0]).parts) == 1  # it knows of no other run


class Stop(Callback):
    """Ends a run after its second round."""

    def on_round(self, state: State, report: RoundReport) -> bool:
        return report.round == 2


def source(kind: str, folder: Path) -> Any:
    """The same clients in several forms."""
    data = make_data()
    if kind == "datasets":
        return {name: TensorDataset(*pair) for name, pair in data.items()}
    if kind == "functions":
        return {name: (lambda pair=pair: pair) for name, pair in data.items()}
    if kind == "tensors":
        return data
    folder.mkdir()
    for name, (x, y) in data.items():
        np.savez(folder / f"{name}.npz", x=x.numpy(), y=y.numpy())
    return from_folder(folder)


GONE = "farm 2"


@pytest.mark.parametrize("kind", ["tensors", "files", *slow("datasets", "functions")])
def test_a_run_goes_on_without_the_data_of_a_client_who_withdrew(kind: str, tmp_path: Path) -> None:
    clients = source(kind, tmp_path / "files")
    folder, kept = tmp_path / "run", tmp_path / "kept"
    nestegg.run(federation(clients), folder, callbacks=[Stop()])
    if kind == "files":
        (tmp_path / "files" / f"{GONE}.npz").unlink()
        left: Any = from_folder(tmp_path / "files")
    else:
        left = {name: data for name, data in clients.items() if name != GONE}
    with pytest.raises(InputError, match=f"'{GONE}' has no data"):
        federation(left)
    less = federation(without(left, [GONE]))
    with pytest.raises(InputError, match="the data or the initial model is not what the run in"):
        nestegg.run(less, folder, resume=True)  # nobody has withdrawn
    with Ledger(folder / "private" / "ledger.db") as ledger:
        ledger.withdraw(GONE, "her wish")
    shutil.copytree(folder, kept)
    with pytest.raises(InputError, match="the data or the initial model is not what the run in"):
        nestegg.run(federation(without(left, [GONE, "farm 3"])), folder, resume=True)
    assert nestegg.run(less, folder, resume=True)["rounds"] == 4
    if kind != "files":
        nestegg.run(federation(clients), kept, resume=True)  # what is kept makes no difference
        assert (folder / "model.safetensors").read_bytes() == (kept / "model.safetensors").read_bytes()


def test_a_folder_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Its fingerprint is one digest of everything."""
    folder, file = tmp_path / "run", tmp_path / "run" / "private" / "fingerprint.json"
    world = federation(make_data())
    nestegg.run(world, folder, callbacks=[Stop()])
    noted = json.loads(file.read_text())
    assert len(noted.pop("clients")) == 32 * len(NAMES)
    key = secrets.token_bytes(32)
    digest = private._digest(key, world.fingerprint())
    file.write_text(json.dumps({**noted, "key": key.hex(), "digest": digest}))
    with pytest.raises(InputError, match="the data or the initial model is not what the run in"):
        nestegg.run(federation(make_data(shift=0.1)), folder, resume=True)
    assert nestegg.run(federation(make_data()), folder, resume=True)["rounds"] == 4


@pytest.mark.parametrize("content", ["nonsense", "{}", '{"key": "zz", "digest": "", "clients": ""}', "[]"])
def test_a_damaged_fingerprint_is_one_sentence(content: str, tmp_path: Path) -> None:
    nestegg.run(federation(make_data()), tmp_path / "run", callbacks=[Stop()])
    (tmp_path / "run" / "private" / "fingerprint.json").write_text(content)
    with pytest.raises(InputError, match=r"fingerprint.json cannot be read"):
        nestegg.run(federation(make_data()), tmp_path / "run", resume=True)


def test_a_source_that_tells_clients_not_apart_needs_all_of_them(tmp_path: Path) -> None:
    nestegg.run(federation(Table()), tmp_path / "run", callbacks=[Stop()])
    assert "clients" not in json.loads((tmp_path / "run" / "private" / "fingerprint.json").read_text())
    assert nestegg.run(federation(Table()), tmp_path / "run", resume=True)["rounds"] == 4


CONFIG = """
[federation]
dataset = "people.parquet"
client_column = "user"
target_column = "label"
classes = 2
[training]
rounds = 4
local_epochs = 1
reproducible = true
[privacy]
clip_norm = 2.0
[[privacy.groups]]
name = "strict"
share = 0.5
epsilon = 8.0
[[privacy.groups]]
name = "open"
share = 0.5
epsilon = 20.0
"""


def people(path: Path, *, gone: str = "", change: str = "") -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(160, 2)).astype(np.float32)
    users = np.array([f"user {i % 8}" for i in range(160)])
    x[users == change] += 1.0
    chosen = users != gone
    table = {"user": users[chosen], "a": x[chosen, 0], "b": x[chosen, 1], "label": (x.sum(1) > 0).astype(int)[chosen]}
    pq.write_table(pa.table(table), path)


def test_a_client_who_withdrew_may_be_deleted_from_a_parquet_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    file, folder, kept = tmp_path / "people.parquet", tmp_path / "run", tmp_path / "kept"
    people(file)
    start_run(load_config(tmp_path / "config.toml"), folder, callbacks=[Stop()])
    people(file, gone="user 3")
    refused = run("run", "--resume", folder)
    assert (refused.code, "must be the number of clients in the data" in refused.err) == (2, True)
    with Ledger(folder / "private" / "ledger.db") as ledger:
        ledger.withdraw("user 3", "her wish")
    shutil.copytree(folder, kept)
    people(file, gone="user 3", change="user 4")
    refused = run("run", "--resume", folder)
    assert (refused.code, "the data or the initial model is not" in refused.err) == (2, True)
    people(file, gone="user 3")
    assert resume_run(folder)["rounds"] == 4
    people(file)
    assert resume_run(kept)["rounds"] == 4
    assert (folder / "model.safetensors").read_bytes() == (kept / "model.safetensors").read_bytes()


def test_digests_of_clients_do_not_depend_on_where_batches_are_cut() -> None:
    stream = np.random.default_rng(5)
    sizes = stream.integers(1, 9, size=40)
    ends = np.cumsum(sizes)
    x, y = stream.normal(size=(ends[-1], 3)), stream.integers(5, size=ends[-1])
    found = []
    for cuts in (0, 3, 30, 90):
        digests, edges = ClientDigests(ends), sorted({0, *stream.integers(ends[-1], size=cuts).tolist(), int(ends[-1])})
        for begin, end in pairwise(edges):
            digests.add(x[begin:end], y[begin:end])
        found.append(digests.done())
    assert len({one.tobytes() for one in found}) == 1
    assert len({one.tobytes() for one in found[0]}) == 40
    x[ends[6]] += 1e-9  # the first row of the eighth client
    changed = ClientDigests(ends)
    changed.add(x, y)
    assert np.flatnonzero((changed.done() != found[0]).any(axis=1)).tolist() == [7]
