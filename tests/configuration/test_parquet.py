"""A Parquet file of clients in a configuration: `plan`, `run` and `compare` work on it, mistakes leave nothing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from nestegg.data import from_parquet
from tests.configuration.test_own import CONFIG
from tests.conftest import Run


def parquet(path: Path, seed: int, numbers: bool = False, flip: bool = False) -> Path:
    """Six clients, 20 samples each, in no order; the label is whether the features' difference is positive."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 2)).astype(np.float32)
    difference = x[:, 0] - x[:, 1]
    columns = {
        "user": [f"user {i % 6}" for i in range(120)],
        "height": x[:, 0],
        "label": difference if numbers else (difference > 0).astype(np.int64),
        "weight": x[:, 1],
    }
    pq.write_table(pa.table({name: columns[name] for name in sorted(columns, reverse=flip)}), path)
    return path


def parquet_config(folder: Path, *changes: tuple[str, str]) -> Path:
    keys = 'dataset = "people.parquet"\nclient_column = "user"\ntarget_column = "label"\ntest = "test.parquet"'
    text = CONFIG.replace('dataset = "{module}:clients"', keys).replace('"{module}:model"', '"linear"')
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "config.toml").write_text(text)
    return folder / "config.toml"


def test_a_parquet_file_of_clients(run: Run, tmp_path: Path) -> None:
    parquet(tmp_path / "people.parquet", 1)
    parquet(tmp_path / "test.parquet", 2, flip=True)  # its columns are in another order, which is no matter
    file = parquet_config(
        tmp_path, ("[privacy]", '[privacy]\nmethod = "fedavg"'), ("local_epochs = 1", "local_epochs = 20")
    )
    assert run("run", file, "--out", tmp_path / "run").code == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["final_accuracy"] > 95.0
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == {"1.weight", "1.bias"}
    written = tmp_path / "run" / "config.toml"  # with all defaults, and nothing that would be refused
    assert run("run", written, "--out", tmp_path / "again").code == 0
    written.write_text(written.read_text().replace("[federation]", '[federation]\npartition = "dirichlet"'))
    (tmp_path / "run" / "summary.json").unlink()  # an older version wrote it, and such a run goes on
    moved = shutil.move(file, tmp_path / "elsewhere.toml")
    assert run("run", "--resume", tmp_path / "run").code == 0  # paths in the folder are absolute
    assert json.loads(run("plan", moved, "--json").out)["clients"] == 6


def test_numbers_in_a_parquet_file_and_no_test_data(run: Run, tmp_path: Path) -> None:
    parquet(tmp_path / "people.parquet", 1, numbers=True)
    loss = ("rounds = 3", 'rounds = 3\nloss = "torch.nn.functional:mse_loss"')
    file = parquet_config(tmp_path, loss, ('\ntest = "test.parquet"', "\nclasses = 1"))
    assert run("run", file, "--out", tmp_path / "run").code == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["final_accuracy"], summary["final_loss"]) == (None, None)


def test_the_index_of_a_data_frame_is_no_feature(run: Run, tmp_path: Path) -> None:
    """A table of chosen rows brings its index as a column, which is refused unless it is asked for."""
    for number, name in enumerate(("people.parquet", "test.parquet")):
        table = pq.read_table(parquet(tmp_path / name, number))
        pq.write_table(table.append_column("__index_level_0__", pa.array(range(120))), tmp_path / name)
    refused = run("run", parquet_config(tmp_path), "--out", tmp_path / "run")
    assert refused.code == 2
    assert "people.parquet: column '__index_level_0__' is the index of a data frame" in refused.err
    assert not (tmp_path / "people.parquet.index").exists()
    features = ["height", "weight", "__index_level_0__"]
    chosen = from_parquet(tmp_path / "people.parquet", client="user", target="label", features=features)
    assert chosen.load("user 1")[0].shape == (20, 3)


def test_test_data_must_have_the_clients_columns(run: Run, tmp_path: Path) -> None:
    people, _ = parquet(tmp_path / "people.parquet", 0), parquet(tmp_path / "test.parquet", 1)
    pq.write_table(pq.read_table(people).append_column("line", pa.array(range(120))), people)
    refused = run("run", parquet_config(tmp_path), "--out", tmp_path / "run")
    assert refused.code == 2
    said = " ".join(refused.err.split())
    assert re.search(r"federation\.test = '\S*test\.parquet' lacks the column 'line' of '\S*people\.parquet'\.", said)
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_parquet_files_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    parquet(tmp_path / "people.parquet", 1)
    parquet(tmp_path / "test.parquet", 2)
    for change, message in (
        (('target_column = "label"', 'target_column = "lable"'), "federation.target_column = 'lable': people.parquet"),
        (
            ('client_column = "user"', 'client_column = "usr"'),
            "federation.client_column = 'usr': people.parquet has no",
        ),
        (("people.parquet", "nobody.parquet"), "nobody.parquet"),
        (("test.parquet", "nobody.parquet"), "nobody.parquet"),
        (("test.parquet", "people.parquet"), "people.parquet' is the clients' own data"),
        (("test.parquet", "test.csv"), "test.csv' must be a Parquet file"),
        (
            ('client_column = "user"', 'client_column = "user"\nsamples_per_client = 3'),
            "samples_per_client is for data",
        ),
        (('client_column = "user"', 'client_column = "user"\npartition = "dirichlet"'), "partition is for data"),
    ):
        refused = run("run", parquet_config(tmp_path, change), "--out", tmp_path / "run")
        assert refused.code == 2
        assert message in refused.err
        assert len(refused.err.strip().splitlines()) == 1
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["plan", "run", "compare"])
@pytest.mark.parametrize(
    "mistake",
    [
        ("[privacy]", '[privacy]\nbudgets_file = "budgets.csv"'),
        ("rounds = 3", "rounds = 0"),
        ('"test.parquet"', '"nobody.parquet"'),
    ],
)
def test_a_refused_command_takes_its_index_back(
    command: str, mistake: tuple[str, str], run: Run, tmp_path: Path
) -> None:
    parquet(tmp_path / "people.parquet", 1)
    parquet(tmp_path / "test.parquet", 2)
    (tmp_path / "budgets.csv").write_text("client,epsilon\nsomebody else,5\n")
    file = parquet_config(tmp_path, mistake)
    if "budgets_file" in mistake[1]:
        file.write_text(file.read_text().split("[[privacy.groups]]")[0])
    before = sorted(tmp_path.iterdir())
    assert run(command, file, "--out", tmp_path / "out").code == 2
    assert sorted(tmp_path.iterdir()) == before
    parquet_config(tmp_path)
    assert run("plan", file).code == 0  # and another command makes it
    indexed = sorted(tmp_path.iterdir())
    assert [path.name for path in indexed if path not in before] == ["people.parquet.index", "test.parquet.index"]
    parquet_config(tmp_path, ("rounds = 3", "rounds = 0"))
    assert run(command, file, "--out", tmp_path / "out").code == 2
    assert sorted(tmp_path.iterdir()) == indexed  # what was there before stays
