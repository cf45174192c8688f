"""Folders with a file for each client."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch

import nestegg.data.single
from nestegg import InputError
from nestegg.data import Source, from_folder

X, Y = np.array([[1.5, 2.0], [3.0, 4.0]], np.float32), np.array([1, 0])


def write_npz(path: Path, x: Any, y: Any) -> None:
    np.savez(path, x=x, y=y)


def write_safetensors(path: Path, x: Any, y: Any) -> None:
    safetensors.numpy.save_file({"x": x, "y": y}, path)


def write_csv(path: Path, x: Any, y: Any) -> None:
    rows = [f"{a},{label},{b}" for (a, b), label in zip(x.tolist(), y.tolist(), strict=True)]
    path.write_text("\n".join(["a,label,b", *rows]))


def write_parquet(path: Path, x: Any, y: Any) -> None:
    pq.write_table(pa.table({"a": x[:, 0], "label": y, "b": x[:, 1]}), path)


WRITERS: dict[str, Callable[[Path, Any, Any], None]] = {
    ".npz": write_npz,
    ".safetensors": write_safetensors,
    ".csv": write_csv,
    ".parquet": write_parquet,
}


def options(suffix: str) -> dict[str, Any]:
    return {"target": "label"} if suffix in (".csv", ".parquet") else {}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_for_each_client(suffix: str, tmp_path: Path) -> None:
    for number, name in enumerate(("Zoë", "a b", "nan", "x.y", "'")):
        WRITERS[suffix](tmp_path / f"{name}{suffix}", X + number, Y)
    (tmp_path / "readme.txt").write_text("about these people")
    (tmp_path / f".hidden{suffix}").write_text("")
    (tmp_path / f"folder{suffix}").mkdir()
    source = from_folder(tmp_path, **options(suffix))
    assert isinstance(source, Source)
    assert (source.names, source.sizes) == (("'", "Zoë", "a b", "nan", "x.y"), None)
    for number, name in enumerate(("Zoë", "a b", "nan", "x.y", "'")):
        x, y = source.load(name)
        assert torch.equal(x, torch.from_numpy(X + number))
        assert torch.equal(y, torch.from_numpy(Y))
    for name in ("readme", ".hidden", "folder", "../x"):
        with pytest.raises(InputError, match="the data has no client"):
            source.load(name)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_that_is_damaged_later_is_one_client_s(suffix: str, tmp_path: Path) -> None:
    for name in ("ada", "bob", "eve"):
        WRITERS[suffix](tmp_path / f"{name}{suffix}", X, Y)
    source = from_folder(tmp_path, suffix=suffix, **options(suffix))
    before = source.fingerprint()
    assert before == from_folder(tmp_path, suffix=suffix, **options(suffix)).fingerprint()
    (tmp_path / f"ada{suffix}").write_bytes(b"\x00nonsense")
    (tmp_path / f"bob{suffix}").unlink()
    for name in ("ada", "bob"):
        with pytest.raises(InputError, match=rf"{name}{suffix}") as error:
            source.load(name)
        assert "\n" not in str(error.value)
    assert torch.equal(source.load("eve")[1], torch.from_numpy(Y))
    assert source.fingerprint() != before
    later = from_folder(tmp_path, suffix=suffix, **options(suffix))
    assert later.names == ("ada", "eve")


@pytest.mark.parametrize("suffix", WRITERS)
def test_types_of_whole_numbers(suffix: str, tmp_path: Path) -> None:
    WRITERS[suffix](tmp_path / f"ada{suffix}", X.astype(np.int64), Y.astype(np.float64) / 2)
    x, y = from_folder(tmp_path, **options(suffix)).load("ada")
    assert x.dtype == (torch.float32 if suffix == ".csv" else torch.int64)
    assert y.tolist() == [0.5, 0.0]


def test_columns_are_chosen(tmp_path: Path) -> None:
    write_csv(tmp_path / "ada.csv", X, Y)
    assert from_folder(tmp_path, target="label", features=["b"]).load("ada")[0].tolist() == [[2.0], [4.0]]


class Harmful:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("harm",))


def test_no_pickle_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "ada.npz", x=np.array([Harmful()], dtype=object), y=Y)
    (tmp_path / "bob.npz").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(InputError, match=r"ada\.npz cannot be read: Object arrays cannot be loaded"):
        from_folder(tmp_path).load("ada")
    with pytest.raises(InputError, match=r"bob\.npz cannot be read"):
        from_folder(tmp_path).load("bob")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("files", "choices", "sentence"),
    [
        (
            {"ada.npz": {"x": X, "y": Y}, "ada.csv": "a,b"},
            {},
            r"suffix must say which files of .* it has \.csv and \.npz\.",
        ),
        ({"ada.txt": "hello"}, {}, r"it has none of \.npz, \.safetensors, \.csv, \.parquet\."),
        ({"ada.txt": "hello"}, {"suffix": ".npz"}, r"has no files whose names end in \.npz\."),
        ({"ada.txt": "hello"}, {"suffix": ".txt"}, r"suffix = '\.txt' must be one of \.npz, \.safetensors"),
        ({"ada.npz": {"x": X, "z": Y}}, {}, r"ada\.npz must hold the arrays x, the inputs, and y, the targets\."),
        ({"ada.npz": {"x": X, "y": Y}}, {"target": "y"}, r"suffix = '\.npz': target is the column of \.csv and \.parq"),
        (
            {"ada.csv": "a,b\n1,2"},
            {},
            r"suffix = '\.csv': target is the column of \.csv and \.parquet files, which need",
        ),
        ({"ada.csv": "a;label\n1;2"}, {"target": "label"}, r"target = 'label': ada\.csv has no column of that name\."),
        ({"ada.csv": "a,label\n1,2\n,3"}, {"target": "label"}, r"column 'a' has missing, NaN or infinite values \(1\)"),
        ({"ada.csv": "a,label\nx,2"}, {"target": "label"}, "column 'a' is of type string; it must hold numbers"),
        ({"ada.csv": "a,label\n"}, {"target": "label"}, r"ada\.csv has no rows\."),
        ({"ada.csv": ""}, {"target": "label"}, r"ada\.csv cannot be read: Empty CSV file\."),
    ],
)
def test_folders_that_are_refused(
    files: dict[str, Any], choices: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    for name, data in files.items():
        if isinstance(data, dict):
            np.savez(tmp_path / name, **data)
        else:
            (tmp_path / name).write_text(data)
    with pytest.raises(InputError, match=sentence):
        from_folder(tmp_path, **choices).load("ada")


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent cannot be read: No such file or directory"):
        from_folder(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file cannot be read: Not a directory"):
        from_folder(tmp_path / "file", suffix=".npz")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_client_of_too_many_rows(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nestegg.data.single, "MAX_SAMPLES", 1)
    WRITERS[suffix](tmp_path / f"ada{suffix}", X, Y)
    with pytest.raises(InputError, match=f"ada{suffix} has more than 1 rows"):
        from_folder(tmp_path, target="label").load("ada")


def test_empty_files_of_parquet(tmp_path: Path) -> None:
    write_parquet(tmp_path / "ada.parquet", X[:0], Y[:0])
    with pytest.raises(InputError, match=r"ada\.parquet has no rows\."):
        from_folder(tmp_path, target="label").load("ada")
    pq.write_table(pa.table({"x": pa.array([], pa.list_(pa.float32())), "label": Y[:0]}), tmp_path / "ada.parquet")
    with pytest.raises(InputError, match=r"ada\.parquet has no rows\."):
        from_folder(tmp_path, target="label").load("ada")


def test_the_extra_for_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write_npz(tmp_path / "ada.npz", X, Y)
    assert from_folder(tmp_path).names == ("ada",)
    with pytest.raises(InputError, match=r"a folder of \.csv files needs the extra 'tables'"):
        from_folder(tmp_path, suffix=".csv", target="label")
