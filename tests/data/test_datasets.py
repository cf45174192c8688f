"""Datasets: the real files where they are, damaged ones always, partitions, and downloads from a server of our own."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from nestegg import InputError
from nestegg.data import PARTITIONS, load_dataset, partition
from nestegg.data.adult import INPUTS, Categories, as_tensors, read_adult
from nestegg.data.catalogue import FILES, VARIABLE, RemoteFile, find_folder, needed
from nestegg.data.download import download, fetch
from nestegg.data.formats import read_cifar_batch, read_idx
from tests.examples import examples

SHARED = [os.environ.get(VARIABLE, ""), str(Path(__file__).parents[3] / "shared" / "data")]
COUNTS = {
    "mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "fashion-mnist": [6000] * 10,
    "adult": [24720, 7841],
    "cifar10": [5000] * 10,
}


def real_folder(name: str) -> str:
    for place in filter(None, SHARED):
        if all((Path(place) / path).is_file() for path in needed(name)):
            return place
    pytest.skip(f"the real {name} files are not on this machine")


def test_digits_are_embedded() -> None:
    data, theirs = load_dataset("digits"), load_digits()
    x, y = torch.from_numpy((theirs.images / 16.0).astype(np.float32))[:, None], torch.from_numpy(theirs.target)
    train = torch.arange(len(y)) % 5 != 0
    assert torch.equal(data.train_x, x[train])
    assert torch.equal(data.train_y, y[train])
    assert (data.train_x.dtype, data.train_y.dtype) == (torch.float32, torch.int64)
    assert np.array_equal(data.test_x[:, 0].numpy() * 16, theirs.images[::5])
    assert np.array_equal(data.test_y.numpy(), theirs.target[::5])
    assert (len(data.train_y), len(data.test_y), data.shape) == (1437, 360, (1, 8, 8))
    assert 0.0 <= float(data.train_x.min()) < float(data.train_x.max()) == 1.0


@pytest.mark.parametrize("name", COUNTS)
def test_the_real_files(name: str) -> None:
    data = load_dataset(name, real_folder(name))
    assert torch.bincount(data.train_y).tolist() == COUNTS[name]
    assert data.train_x.dtype == torch.float32
    assert torch.isfinite(data.train_x).all()
    assert data.test_x.shape[1:] == data.shape


def test_adult_s_inputs_depend_on_the_row_alone(tmp_path: Path) -> None:
    """Other rows, more rows, fewer rows: the same bits, so no statistic of clients' data is in them."""
    whole = load_dataset("adult", real_folder("adult"))
    assert whole.shape == (108,)
    source = Path(real_folder("adult"))
    kept = [line for line in (source / needed("adult")[0]).read_text().splitlines() if line][::977]
    (tmp_path / "adult").mkdir()
    (tmp_path / needed("adult")[0]).write_text("\n".join(kept))
    (tmp_path / needed("adult")[1]).write_text(kept[5])
    few = load_dataset("adult", str(tmp_path))
    assert torch.equal(few.train_x, whole.train_x[::977])
    assert torch.equal(few.train_y, whole.train_y[::977])
    assert torch.equal(few.test_x, whole.train_x[::977][5:6])


def test_adult_s_categories_are_the_documented_ones() -> None:
    """Beside the data lies adult.names, with a line for each column."""
    names = Path(real_folder("adult")) / "adult" / "adult.names"
    if not names.is_file():
        pytest.skip("adult.names is not beside the data")
    documented = dict(line.rstrip(".").split(": ") for line in names.read_text().splitlines() if ": " in line[:16])
    for name, column in INPUTS.items():
        words = ", ".join(word for word in column.known if word != "?") if isinstance(column, Categories) else None
        assert documented[name] == (words or "continuous")


def inputs_of(row: str, column: str, tmp_path: Path) -> list[float]:
    """What a row has in a column's inputs."""
    (tmp_path / "rows").write_text(row)
    x, _ = as_tensors(read_adult(tmp_path / "rows"))
    start = 0
    for name, one in INPUTS.items():
        width = len(one.known) if isinstance(one, Categories) else 1
        if name == column:
            return [float(value) for value in x[0, start : start + width]]
        start += width
    raise AssertionError(column)


@pytest.mark.parametrize(
    ("column", "old", "new", "expected"),
    [
        ("age", "39", "50", 0.0),
        ("age", "39", "0", -(3**0.5)),
        ("age", "39", "100", 3**0.5),
        ("age", "39", "250", 3**0.5),  # clamped
        ("age", "39", "-5", -(3**0.5)),
        ("hours-per-week", "0, 40,", "0, 75,", 3**0.5 / 2),
        ("education-num", "13", "16", 3**0.5),
        ("capital-gain", "2174", "0", -(3**0.5)),
        ("capital-gain", "2174", "99999", 3**0.5),
        ("capital-gain", "2174", "999999999", 3**0.5),
        ("capital-gain", "2174", "9", 3**0.5 * (2 * 1 / 5 - 1)),  # log₁₀ of 10 and of 100,000
        ("fnlwgt", "77516", "500000", 0.0),
    ],
)
def test_adult_s_numbers_lie_between_public_bounds(
    column: str, old: str, new: str, expected: float, tmp_path: Path
) -> None:
    assert old in ROW
    (value,) = inputs_of(ROW.replace(old, new, 1), column, tmp_path)
    assert value == pytest.approx(expected, abs=1e-6)


def test_an_unknown_category_is_zero_in_all_its_inputs(tmp_path: Path) -> None:
    assert inputs_of(ROW, "sex", tmp_path) == [0.0, 1.0]
    assert inputs_of(ROW, "native-country", tmp_path) == [0.0] * 41 + [1.0]  # "?" is a category here
    for column, old, new in (("sex", "Male", "?"), ("workclass", "State-gov", "Astronaut"), ("race", "White", "white")):
        assert set(inputs_of(ROW.replace(old, new), column, tmp_path)) == {0.0}


def idx(shape: tuple[int, ...], magic: bytes | None = None, size: int | None = None) -> bytes:
    header = magic or bytes([0, 0, 8, len(shape)])
    body = bytes(int(np.prod(shape)) if size is None else size)
    return gzip.compress(header + b"".join(n.to_bytes(4, "big") for n in shape) + body, mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (idx((2, 3, 3))[:20], "not a complete gzip file"),
        (gzip.compress(b"\0\0", mtime=0), "not an IDX file"),
        (idx((2, 3, 3), magic=b"\0\0\x0d\x03"), "its magic is 00000d03"),
        (idx((4,)), "not an IDX file of bytes in 3 dimensions"),
        (idx((2, 3, 3), size=17), "has 33 bytes; its header says 34"),
        (idx((2, 3, 3), size=19), "has 35 bytes; its header says 34"),
        (idx((2**31, 2**31, 2**31), size=1), "its header says"),
    ],
)
def test_damaged_idx_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_idx(tmp_path / "file.gz", 3)


def test_labels_must_fit_images(tmp_path: Path) -> None:
    for path, content in zip(needed("mnist"), [idx((3, 28, 28)), idx((2,)), idx((1, 28, 28)), idx((1,))], strict=True):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    with pytest.raises(InputError, match="has 2 labels for 3 images"):
        load_dataset("mnist", str(tmp_path))


ROW = "39, State-gov, 77516, Bachelors, 13, Never-married, Sales, Not-in-family, White, Male, 2174, 0, 40, ?, <=50K"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROW[:-7], "line 1 has 14 values"),
        (ROW.rsplit(",", 2)[0], "line 1 has 13 values; there must be 15"),
        (ROW.replace("39", "--39"), "line 1: age = '--39'"),
        (ROW.replace("39", "old"), "line 1: age = 'old' must be a whole number"),
        (ROW.replace("<=50K", "rich"), "line 1: income = 'rich'"),
        ("\xff\xfe", "not a text file"),
    ],
)
def test_damaged_adult_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "adult.data").write_bytes(text.encode("latin1"))
    with pytest.raises(InputError, match=message):
        read_adult(tmp_path / "adult.data")


def test_adult_s_test_file_has_a_comment_and_full_stops(tmp_path: Path) -> None:
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{ROW}.\n\n")
    assert read_adult(tmp_path / "adult.test")[0]["income"] == "<=50K"


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("echo owned",))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Evil(), "it asks for .*system"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1], "more": Evil()}, "it asks for .*system"),
        ([1, 2], "must hold data and labels"),
        ({"data": np.zeros((2, 3000), np.uint8), "labels": [0, 1]}, "must hold"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "must hold"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 10]}, "label outside 0 to 9"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_cifar_pickles_hold_arrays_or_are_refused(batch: Any, message: str, protocol: int, tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps(batch, protocol))
    with pytest.raises(InputError, match=message):
        read_cifar_batch(tmp_path / "batch")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_sound_cifar_batch(protocol: int, tmp_path: Path) -> None:
    data = np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072)
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": data, "labels": [3, 9]}, protocol))
    images, labels = read_cifar_batch(tmp_path / "batch")
    assert images.shape == (2, 3, 32, 32)
    assert labels.tolist() == [3, 9]
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": data}, protocol)[:50])
    with pytest.raises(InputError, match="not a CIFAR-10 batch"):
        read_cifar_batch(tmp_path / "batch")


def test_a_folder_that_was_named_is_the_only_one_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in needed("mnist"):
        (tmp_path / "there" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / path).touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "there"))
    assert find_folder("mnist", None) == tmp_path / "there"
    with pytest.raises(InputError, match=r"federation.data = '\S*elsewhere' is not a folder; it must be the one that"):
        find_folder("mnist", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match=r"was not found in \S*elsewhere\. Run .* mnist --folder \S*elsewhere`, or"):
        find_folder("mnist", str(tmp_path / "elsewhere"))


def test_missing_data_says_what_to_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    with pytest.raises(InputError) as error:
        find_folder("mnist", None)
    for words in (
        FILES["mnist"][0].sha256,
        "nestegg data get mnist",
        str(tmp_path / "a"),
        "train-images-idx3-ubyte.gz",
    ):
        assert words in str(error.value)


@examples(40)
@given(
    kind=st.sampled_from(PARTITIONS),
    clients=st.integers(1, 40),
    beta=st.sampled_from([0.01, 0.1, 1.0, 100.0]),
    seed=st.integers(0, 99),
)
def test_a_partition_loses_nothing_and_leaves_nobody_empty(kind: str, clients: int, beta: float, seed: int) -> None:
    labels = np.random.default_rng(0).integers(0, 10, 500)
    parts = partition(labels, clients, kind, beta, np.random.default_rng(seed))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(500))
    assert min(part.size for part in parts) >= 2
    again = partition(labels, clients, kind, beta, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_partitions_are_as_uneven_as_asked() -> None:
    labels = np.repeat(np.arange(10), 100)

    def classes(kind: str, beta: float = 1.0) -> float:
        parts = partition(labels, 20, kind, beta, np.random.default_rng(1))
        return float(np.mean([np.unique(labels[part]).size for part in parts]))

    assert classes("shards") <= 2.6
    assert classes("dirichlet", 0.1) < classes("dirichlet", 100.0)
    assert classes("iid") > 9.0
    with pytest.raises(InputError, match=r"federation\.clients = 600 needs 1200 samples"):
        partition(labels, 600, "iid", 1.0, np.random.default_rng(1))


CONTENT = np.random.default_rng(0).bytes(300_000)


class Server(BaseHTTPRequestHandler):
    """Serves one file with ranges; under /broken the connection ends after 100,000 bytes."""

    def do_GET(self) -> None:
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : 100_000 if "broken" in self.path else None])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def test_a_download_that_broke_off_goes_on(server: str, tmp_path: Path) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    target = tmp_path / "file"
    with pytest.raises(OSError, match=r"broke off after 100000 of 300000 bytes|IncompleteRead"):
        fetch(RemoteFile("file", f"{server}/broken", digest), target, lambda *_: None)
    assert (tmp_path / "file.part").stat().st_size == 100_000
    assert not target.exists()
    seen: list[int] = []
    fetch(RemoteFile("file", f"{server}/whole", digest), target, lambda _, have, __: seen.append(have))
    assert target.read_bytes() == CONTENT
    assert seen[0] > 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_wrong_sum_keeps_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it must be 00ff"):
        fetch(RemoteFile("file", f"{server}/whole", "00ff"), tmp_path / "file", lambda *_: None)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_error_names_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RemoteFile("x/file", "http://127.0.0.1:9/file", "aa")
    monkeypatch.setitem(FILES, "mnist", (file,))
    with pytest.raises(InputError, match=r"cannot be fetched: .*refused.*x/file from http.*SHA-256 aa"):
        download("mnist", tmp_path)
