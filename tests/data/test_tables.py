"""Tables of clients: data frames, Parquet files and Hugging Face datasets, beside a plain group-by."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nestegg.data.arrow
import nestegg.data.grouping
import nestegg.data.index
import nestegg.data.parquet
from nestegg import InputError
from nestegg.data import Source, from_frame, from_hugging_face, from_parquet
from nestegg.data.tables import TableSource
from tests.examples import examples

NAMES = st.one_of(
    st.sampled_from(["nan", "None", "a b", "it's", '"', "\\", "Zoë", "客户", "\n", " ", "a.b", "0", "null"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=4),
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ROWS = st.lists(st.tuples(NAMES, FLOATS, FLOATS, st.integers(0, 9)), min_size=1, max_size=30)
PEOPLE = {"user": ["bob", "ada", "bob", "eve"], "a": [1.0, 2, 3, 4], "b": [5, 6, 7, 8], "label": [0, 1, 1, 0]}


def frame(columns: dict[str, Any]) -> TableSource:
    return from_frame(pd.DataFrame(columns), client="user", target="label")


def polars_frame(columns: dict[str, Any]) -> TableSource:
    return from_frame(pl.DataFrame(columns), client="user", target="label")


def hugging_face(columns: dict[str, Any]) -> TableSource:
    return from_hugging_face(datasets.Dataset.from_dict(columns), client="user", target="label")


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[[Any], TableSource]:
    """A source from a Parquet file that is written for it, in row groups of two."""

    def make(columns: Any) -> TableSource:
        return read(write(tmp_path / "people.parquet", columns))

    return make


@pytest.fixture(params=["pandas", "polars", "hugging-face", "parquet"])
def source_of(request: pytest.FixtureRequest) -> Callable[[Any], TableSource]:
    if request.param == "parquet":
        made: Callable[[Any], TableSource] = request.getfixturevalue("parquet")
        return made
    return {"pandas": frame, "polars": polars_frame, "hugging-face": hugging_face}[request.param]


def write(path: Path, columns: Any) -> Path:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, row_group_size=2)
    return path


def read(path: Path, **choices: Any) -> TableSource:
    return from_parquet(path, **{"client": "user", "target": "label"} | choices)


def naive(rows: Sequence[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """The oracle: every client's rows, in their order."""
    groups = defaultdict(list)
    for name, *values in rows:
        groups[str(name)].append(tuple(values))
    return dict(groups)


def content(source: TableSource) -> dict[str, list[tuple[Any, ...]]]:
    """All that a source gives, client by client, which must be what it gives of all at once."""
    names = list(source.names)
    pairs = [source.load(name) for name in names]
    x, y, sizes = source.load_rows(np.arange(len(names))[::-1])
    assert torch.equal(x, torch.cat([pair[0] for pair in pairs[::-1]]))
    assert torch.equal(y, torch.cat([pair[1] for pair in pairs[::-1]]))
    assert sizes.tolist() == source.sizes.tolist()[::-1] == [len(pair[1]) for pair in pairs[::-1]]
    assert isinstance(source, Source)
    return {
        name: [(*inputs, target) for inputs, target in zip(a.tolist(), b.tolist(), strict=True)]
        for name, (a, b) in zip(names, pairs, strict=True)
    }


def as_columns(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    return dict(zip(("user", "a", "b", "label"), map(list, zip(*rows, strict=True)), strict=True))


@examples(60)
@given(ROWS)
def test_every_way_is_a_group_by(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]) -> None:
    columns, expected = as_columns(rows), naive(rows)
    path = write(tmp_path_factory.mktemp("table") / "people.parquet", columns)
    sources = [frame(columns), polars_frame(columns), hugging_face(columns), read(path), read(path)]
    for source in sources:
        assert content(source) == expected
        assert list(source.names) == sorted(expected)
    assert len({source.fingerprint() for source in sources}) == 1


@examples(30)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), FLOATS, FLOATS, FLOATS), min_size=1), st.data())
def test_numbers_are_names_in_decimal_digits(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    rows += data.draw(st.lists(st.sampled_from(rows)))
    source = frame(as_columns(rows))
    assert content(source) == naive(rows)
    assert list(source.names) == [str(name) for name in sorted({row[0] for row in rows})]


@pytest.mark.parametrize("run_bytes", [1, 200, 10**6])
def test_large_tables_are_sorted_run_by_run(
    run_bytes: int, monkeypatch: pytest.MonkeyPatch, parquet: Callable[[Any], TableSource], tmp_path: Path
) -> None:
    monkeypatch.setattr(nestegg.data.index, "_RUN_BYTES", run_bytes)
    monkeypatch.setattr(nestegg.data.grouping, "_LOOKED_UP", 7)
    monkeypatch.setattr(nestegg.data.arrow, "BATCH", 5)
    stream = np.random.default_rng(5)
    rows = [(f"c{stream.integers(40)}", float(i), 0.5, i) for i in range(1000)]
    assert content(parquet(as_columns(rows))) == naive(rows)
    assert content(parquet(as_columns(sorted(rows)))) == naive(sorted(rows))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.parquet", "people.parquet.index"]


def test_types(source_of: Callable[[Any], TableSource]) -> None:
    def types(**columns: Any) -> list[torch.dtype]:
        return [part.dtype for part in source_of({"user": ["x", "y"], **columns}).load("y")]

    i8, i32, i64, f64 = (np.array([1, 2], kind) for kind in ("u1", "i4", "i8", "f8"))
    assert types(a=i64, b=i32, label=i8) == [torch.int64, torch.int64]
    assert types(a=i64, b=i8, label=f64) == [torch.float32, torch.float32]
    assert types(a=i64, b=f64, label=f64 > 1) == [torch.float32, torch.int64]
    assert types(a=f64 > 1, label=i64) == [torch.float32, torch.int64]


def test_one_column_of_lists_is_the_input(source_of: Callable[[Any], TableSource]) -> None:
    columns = {"user": ["x", "y", "x"], "label": [0.5, 1.5, 2.5]}
    x, y = source_of(columns | {"pixels": [[1.5, 2], [3, 4], [5, 6]]}).load("x")
    assert (x.tolist(), y.tolist()) == ([[1.5, 2.0], [5.0, 6.0]], [0.5, 2.5])
    x, _ = source_of(columns | {"tokens": [[1, 2], [3, 4], [5, 2**40]]}).load("x")
    assert (x.tolist(), x.dtype) == ([[1, 2], [5, 2**40]], torch.int64)


def test_lists_of_fixed_size_and_chosen_columns(parquet: Callable[[Any], TableSource], tmp_path: Path) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 2)
    table = pa.table(PEOPLE | {"pixels": lists})
    path = write(tmp_path / "people.parquet", table)
    assert read(path, features=["pixels"]).load("bob")[0].tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert read(path, features=["b", "a"]).load("bob")[0].tolist() == [[5.0, 1.0], [7.0, 3.0]]
    assert from_frame(pl.DataFrame(table), client="user", target="label", features=["pixels"]).load("eve")[
        0
    ].tolist() == [[6.0, 7.0]]


def test_categories_and_indexes_of_frames() -> None:
    people = pd.DataFrame(PEOPLE).astype({"user": "category"}).set_index(pd.Index(list("wxyz"), name="letter"))
    assert content(from_frame(people, client="user", target="label")) == content(frame(PEOPLE))
    shuffled = pd.DataFrame(PEOPLE).sample(frac=1, random_state=3)  # with an index out of order
    assert list(from_frame(shuffled, client="user", target="label").names) == ["ada", "bob", "eve"]


def test_categories_of_polars_and_of_files(tmp_path: Path) -> None:
    people = pl.DataFrame(PEOPLE).with_columns(pl.col("user").cast(pl.Categorical))
    assert content(from_frame(people, client="user", target="label")) == content(frame(PEOPLE))
    for values in (["ada", "bob", "eve"], [3, 1, 2]):
        users = pa.DictionaryArray.from_arrays([1, 0, 1, 2], values)
        table = pa.table(PEOPLE | {"user": users})
        expected = frame(PEOPLE | {"user": users.to_pylist()})
        assert content(read(write(tmp_path / "people.parquet", table))) == content(expected)
    missing = pa.DictionaryArray.from_arrays([1, 0, 1, 2], ["ada", "bob", None])
    with pytest.raises(InputError, match=r"column 'user' has missing, NaN or infinite values \(1\)"):
        from_frame(pl.DataFrame(pa.table(PEOPLE | {"user": missing})), client="user", target="label")


def test_columns_with_dots(tmp_path: Path) -> None:
    table = pa.table({"user.id": ["x", "y"], "a": [[1.0], [2.0]], "a.list.b": [5, 6], "a.b": [3, 4], "user": [0, 1]})
    path = write(tmp_path / "people.parquet", table)
    source = from_parquet(path, client="user.id", target="user", features=["a.b", "a.list.b"])
    assert source.load("y")[0].tolist() == [[4, 6]]
    assert from_parquet(path, client="user.id", target="a.b", features=["a"]).load("y")[0].tolist() == [[2.0]]


def test_long_rows_are_read_a_few_at_a_time(parquet: Callable[[Any], TableSource], monkeypatch: Any) -> None:
    monkeypatch.setattr(nestegg.data.arrow, "_CELLS", 10)
    rows = np.arange(120.0).reshape(12, 10)
    source = parquet({"user": list("baba") * 3, "label": list(range(12)), "x": list(rows)})
    assert source.load("a")[0].tolist() == rows[1::2].tolist()


def test_an_index_that_is_sent_is_opened_there_if_it_is_the_same(
    parquet: Callable[[Any], TableSource], tmp_path: Path
) -> None:
    source = parquet(PEOPLE)
    sent = pickle.dumps(source)
    assert len(sent) < 4000  # by its place, not by its rows
    there: TableSource = pickle.loads(sent)
    assert there.fingerprint() == source.fingerprint()
    name = source.names[0]
    assert all(torch.equal(*pair) for pair in zip(there.load(name), source.load(name), strict=True))
    parquet({**PEOPLE, "label": [1, 0, 0, 1]})  # in the same place
    with pytest.raises(InputError, match=r"the index .*people\.parquet\.index is of other data"):
        pickle.loads(sent)
    (tmp_path / "people.parquet.index" / "index.json").unlink()
    with pytest.raises(InputError, match="is not there, or damaged"):
        pickle.loads(sent)


def test_a_selection_of_a_hugging_face_dataset() -> None:
    dataset = datasets.Dataset.from_dict(PEOPLE).select([3, 0, 2]).shuffle(seed=1)
    assert list(from_hugging_face(dataset, client="user", target="label").names) == ["bob", "eve"]
    with pytest.raises(InputError, match="dataset of type DatasetDict must be one split"):
        from_hugging_face(datasets.DatasetDict(train=dataset), client="user", target="label")
    with pytest.raises(InputError, match="dataset of type IterableDataset must be one split of a dataset"):
        from_hugging_face(dataset.to_iterable_dataset(), client="user", target="label")


NAN, NONE = float("nan"), None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"a": [1.0, NONE, 3.0, NONE]},
            "column 'a' has missing, NaN or infinite values \\(2\\); there must be none.",
        ),
        ({"a": [1.0, 2.0, NAN, 4.0]}, "column 'a' has missing, NaN or infinite values \\(1\\)"),
        ({"a": [1.0, 2.0, 1e300, -float("inf")]}, "column 'a' has missing, NaN or infinite values \\(2\\)"),
        ({"label": [1.0, NAN, NONE, 4.0]}, "column 'label' has missing, NaN or infinite values \\(2\\)"),
        ({"user": ["bob", NONE, "eve", "ada"]}, "column 'user' has missing, NaN or infinite values \\(1\\)"),
        ({"user": ["bob", "", "eve", "ada"]}, "the client's name '' must be a text that is not empty."),
        ({"user": [""] * 4}, "the client's name '' must be a text that is not empty."),
        ({"user": [1.5, 2.5, 3.5, 4.5]}, "column 'user' is of type double; clients are texts or whole numbers."),
        ({"b": list("wxyz")}, "column 'b' is of type (large_)?string(_view)?; it must hold numbers or truth values"),
        (
            {"label": list("wxyz")},
            r"column 'label' is of type (large_)?string(_view)?; it must hold numbers or truth va",
        ),
        (
            {"b": [[1], [2], [3], [4]]},
            "column 'b' is of type .*list<.*; it must hold numbers or truth values, or be one",
        ),
        ({key: [] for key in PEOPLE} | {"user": pa.array([], pa.string())}, "(has no rows|is of type)"),
    ],
)
def test_tables_that_are_refused(
    change: dict[str, Any], sentence: str, source_of: Callable[[Any], TableSource], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"{sentence}") as error:
        source_of(PEOPLE | change)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] in ([], ["people.parquet"])


@pytest.mark.parametrize(
    ("lists", "sentence"),
    [
        (
            [[1], [2, 3], [4], [5]],
            "column 'pixels' has lists of 1 and of 2 values; all must be of one length, at least 1",
        ),
        ([[1], None, [4], [5]], "column 'pixels' has missing, NaN or infinite values \\(1\\)"),
        ([[1.0], [None], [None], [5.0]], "column 'pixels' has missing, NaN or infinite values \\(2\\)"),
        ([[1.0], [2.0], [NAN], [5.0]], "column 'pixels' has missing, NaN or infinite values \\(1\\)"),
        ([[], [], [], []], "at least 1|is of type null"),
        ([["a"], ["b"], ["c"], ["d"]], "is of type .*string.*; it must hold numbers"),
    ],
)
def test_lists_that_are_refused(lists: Any, sentence: str, source_of: Callable[[Any], TableSource]) -> None:
    with pytest.raises(InputError, match=sentence):
        source_of({"user": PEOPLE["user"], "pixels": lists, "label": PEOPLE["label"]})


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"client": "usr"}, "client = 'usr': people.parquet has no column of that name. Did you mean 'user'?"),
        ({"target": "lable"}, "target = 'lable': people.parquet has no column of that name. Did you mean 'label'?"),
        ({"features": ["a", "c"]}, "features = 'c': people.parquet has no column of that name."),
        ({"features": "ab"}, "features = 'ab' must be a list of columns."),
        ({"features": []}, r"features = \[\] must be a list of columns."),
        ({"features": ["a", "a"]}, r"features = \['a', 'a'\] must be different columns"),
        ({"features": ["a", "label"]}, "client = 'user', target = 'label' and features must be different columns."),
        ({"target": "user"}, "must be different columns"),
    ],
)
def test_columns_that_are_refused(choices: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)
    with pytest.raises(InputError, match=sentence):
        read(path, **choices)
    assert list(tmp_path.iterdir()) == [path]


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.table([pa.array(["x"]), pa.array([1]), pa.array([2]), pa.array([3])], ["user", "a", "a", "label"])
    with pytest.raises(InputError, match=r"people.parquet has 2 columns of that name"):
        read(write(tmp_path / "people.parquet", table), features=["a"])
    with pytest.raises(InputError, match="must be different columns"):
        read(tmp_path / "people.parquet")
    two = pd.DataFrame([["x", 1, 2, 3]], columns=["user", "a", "a", "label"])
    with pytest.raises(InputError, match="frame cannot be read: Duplicate column names found"):
        from_frame(two, client="user", target="label")


def test_no_features_at_all() -> None:
    with pytest.raises(InputError, match="at least one"):
        frame({"user": ["x"], "label": [1]})


def test_what_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"frame cannot be read: .*column user"):
        frame(PEOPLE | {"user": ["x", 1, "y", 2]})
    with pytest.raises(InputError, match=r"frame of type dict must be a data frame of pandas or polars."):
        from_frame(PEOPLE, client="user", target="label")
    for name, data in (("text", b"user,label\nx,1\n"), ("empty", b""), ("short", b"PAR1")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=f"{name} cannot be read as a Parquet file: .*"):
            read(tmp_path / name)
    with pytest.raises(InputError, match=r"absent cannot be read: there is no such file\."):
        read(tmp_path / "absent")
    with pytest.raises(InputError, match="cannot be read as a Parquet file"):
        read(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "short", "text"]


def test_a_client_of_too_many_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert nestegg.data.grouping.MAX_SAMPLES == 1_000_000
    monkeypatch.setattr(nestegg.data.grouping, "MAX_SAMPLES", 1)
    with pytest.raises(InputError, match=r"people.parquet: client 'bob' has 2 rows; at most 1 are allowed."):
        read(write(tmp_path / "people.parquet", PEOPLE))
    assert [path.name for path in tmp_path.iterdir()] == ["people.parquet"]


def test_an_unknown_client(source_of: Callable[[Any], TableSource]) -> None:
    source = source_of(PEOPLE)
    with pytest.raises(InputError, match="the data has no client 'zed'"):
        source.load("zed")
    x, y, sizes = source.load_rows(np.array([], np.int64))
    assert (tuple(x.shape), tuple(y.shape), sizes.tolist()) == ((0, 2), (0,), [])
