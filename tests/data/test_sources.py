"""Sources of clients: mappings, names, and joins of data with budgets."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

import nestegg
from nestegg import InputError
from nestegg.data import MappingSource, Source, as_source, joined, positions
from nestegg.data.names import Names
from tests.examples import examples

X, Y = torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 1])
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


def refuse() -> Any:
    raise RuntimeError("a disk that is not there")


def test_a_mapping_is_a_source() -> None:
    clients: dict[str, Any] = {
        "ada": (X, Y),
        "bob b.": (X.double().numpy(), Y.numpy()),
        "'eve'": TensorDataset(X[:2], Y[:2]),
        "nan": [(X[0], 1)],
    }
    source = as_source(clients)
    assert isinstance(source, nestegg.Source)
    assert list(source.names) == list(clients)
    assert source.sizes is not None
    assert source.sizes.tolist() == [3, 3, 2, 1]
    assert all(source.load(name) is clients[name] for name in clients)
    calls: list[str] = []

    def load() -> Any:
        calls.append("late")
        return X, Y

    late = as_source(clients | {"late": load})
    assert late.sizes is None
    assert calls == []
    assert late.load("late")[0] is X
    assert calls == ["late"]
    assert as_source(late) is late


def test_a_client_that_cannot_be_read_raises_when_it_is_loaded() -> None:
    source = as_source({"ada": (X, Y), "bob": refuse})
    with pytest.raises(RuntimeError, match="not there"):
        source.load("bob")


def test_clients_by_position_stay_as_they_are() -> None:
    clients = [(X, Y), (X, Y)]
    assert as_source(clients) is clients
    assert as_source(tuple(clients)) == tuple(clients)


@pytest.mark.parametrize(
    ("clients", "sentence"),
    [
        ({7: (X, Y)}, "the client's name 7 must be a text that is not empty."),
        ({"": (X, Y)}, "the client's name '' must be a text that is not empty."),
        ({"ada": (X, Y[:2])}, r"clients\['ada'\] has arrays of shapes \(3, 2\) and \(2,\); there must be as many"),
        ({"ada": (X, torch.tensor(1))}, "there must be as many inputs as targets"),
        ({"ada": (X, [0, 1, 1])}, r"clients\['ada'\] must be a pair of tensors or arrays, a dataset of pairs, or a"),
        ({"ada": "people.csv"}, "must be a pair of tensors or arrays"),
        ({"ada": None}, "must be a pair of tensors or arrays"),
        ({"ada": {"x": X, "y": Y}}, "must be a pair of tensors or arrays"),
        ({"ada": (np.array(["a", "b"]), Y[:2].numpy())}, "holds other things than numbers"),
        (None, "clients of type NoneType must be a mapping of names to data, a source, or a list."),
        ((pair for pair in [(X, Y)]), "clients of type generator must be"),
    ],
)
def test_what_is_no_data_is_refused(clients: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        as_source(clients)


def test_the_fingerprint_of_a_mapping_follows_its_content() -> None:
    def fingerprint(**clients: Any) -> bytes:
        return MappingSource(clients).fingerprint()

    changed = X.clone()
    changed[2, 1] += 1
    as_bf16 = (X.bfloat16(), Y)
    same = fingerprint(ada=(X, Y))
    assert fingerprint(ada=(X.clone(), Y.clone())) == same == fingerprint(ada=(X.numpy(), Y.numpy()))
    assert fingerprint(ada=(X.T.contiguous().T, Y)) == same
    others = [
        fingerprint(ada=(changed, Y)),
        fingerprint(ada=(X, Y.flip(0))),
        fingerprint(ada=(X.reshape(3, 2, 1), Y)),
        fingerprint(bob=(X, Y)),
        fingerprint(ada=(X, Y), bob=(X, Y)),
        fingerprint(ada=as_bf16),
        fingerprint(ada=TensorDataset(X, Y)),
        fingerprint(ada=TensorDataset(changed, Y)),
        fingerprint(ada=refuse),
    ]
    assert len({same, *others}) == 1 + len(others)


def test_a_source_of_one_s_own() -> None:
    class Own:
        names = ("ada",)
        sizes = None

        def load(self, name: str) -> Any:
            return X, Y

        def fingerprint(self) -> bytes:
            return b"1"

    own = Own()
    assert isinstance(own, Source)
    assert as_source(own) is own


def compact(names: list[str], are_numbers: bool = False) -> Names:
    encoded = [name.encode() for name in names]
    ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
    return Names(np.frombuffer(b"".join(encoded), np.uint8), ends, are_numbers)


@examples(100)
@given(st.sets(TEXTS, min_size=1), TEXTS)
def test_compact_names_are_a_sequence(known: set[str], other: str) -> None:
    listed = sorted(known)
    names = compact(listed)
    assert (list(names), len(names)) == (listed, len(listed))
    assert [names[i] for i in range(-len(listed), len(listed))] == listed + listed
    assert names[1:3] == listed[1:3]
    assert [names.position(name) for name in listed] == list(range(len(listed)))
    assert (other in names) == (other in known)


@examples(50)
@given(st.sets(st.integers(-(2**63), 2**64 - 1), min_size=1))
def test_compact_names_of_numbers(known: set[int]) -> None:
    listed = [str(number) for number in sorted(known)]
    names = compact(listed, are_numbers=True)
    assert [names.position(name) for name in listed] == list(range(len(listed)))
    for other in (f"0{listed[0]}", f" {listed[0]}", f"{listed[0]}.0", "x", "", "١"):
        assert other not in names
    with pytest.raises(InputError, match="the data has no client 'x'"):
        names.position("x")


def test_names_beyond_a_chunk() -> None:
    listed = [f"client-{number:06}" for number in range(70_000)]
    names = compact(listed)
    assert list(names) == listed
    assert 7 not in names
    with pytest.raises(IndexError):
        names[70_000]


@examples(100)
@given(st.lists(TEXTS, unique_by=lambda name: unicodedata.normalize("NFC", name), min_size=1), st.randoms())
def test_budgets_and_data_join_by_name(names: list[str], random: Any) -> None:
    budgets = random.sample(names, len(names))
    assert [names[position] for position in joined(budgets, names)] == budgets
    some = random.sample(budgets, len(budgets) // 2)
    assert [names[position] for position in positions(names, some)] == some


def test_who_is_missing_is_said() -> None:
    names = [f"c{i}" for i in range(6)]
    assert positions(names, []).tolist() == []
    with pytest.raises(InputError, match=r"^'a' has no data\.$"):
        positions(names, ["c1", "a"])
    with pytest.raises(InputError, match=r"^'a', 'b', 'c' and 1,000 more have no data\.$"):
        positions(names, ["a", "b", "c", *(f"d{i}" for i in range(1000))])
    with pytest.raises(InputError, match=r"same clients: 'a', 'b' have no data; 'c2', 'c3', 'c4' and 1 more have no b"):
        joined(["a", "c1", "b", "c0"], names)
    with pytest.raises(InputError, match=r"same clients: 'c0' has no budget\.$"):
        joined(names[1:], names)
    with pytest.raises(InputError, match="budgets name 7 clients, of which 6 are different"):
        joined([*names, "c1"], names)
    with pytest.raises(InputError, match="'c1' is in the data twice"):
        joined(names, [*names, "c1"])


def test_a_name_is_the_same_however_it_is_composed() -> None:
    composed, decomposed = "Zoë", unicodedata.normalize("NFD", "Zoë")
    assert joined(["ada", composed], [decomposed, "ada"]).tolist() == [1, 0]
    with pytest.raises(InputError, match="is in the data twice"):
        joined([composed], [composed, decomposed])


def test_no_library_of_tables_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, nestegg.data; nestegg.Source; nestegg.data.as_source({})\n"
        "print([m for m in ('pyarrow', 'pandas', 'polars', 'datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    for name, extra in (("from_frame", "tables"), ("from_parquet", "tables"), ("from_hugging_face", "hugging-face")):
        with pytest.raises(InputError, match=rf"nestegg\.data\.{name} needs the extra '{extra}': pip install"):
            getattr(nestegg.data, name)
    with pytest.raises(AttributeError, match="has no attribute 'from_excel'"):
        _ = nestegg.data.from_excel
    assert {"from_frame", "Source"} <= set(dir(nestegg.data))


def test_the_guide_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(blocks) == guide.count("```") // 2 == 7
    scope: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(block, scope)
    (printed,) = re.findall(r"# (budgets and data .*)", blocks[-1])
    assert capsys.readouterr().out == f"{printed}\n"
