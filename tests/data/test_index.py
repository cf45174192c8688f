"""The index of a Parquet file: private, made once, whole or not at all, whoever comes at the same time."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nestegg.data.arrow
import nestegg.data.grouping
import nestegg.data.index
import nestegg.data.parquet
import nestegg.data.tables
from nestegg import InputError
from nestegg.data.reading import read_runs
from nestegg.data.sources import Floats
from tests.data.test_tables import PEOPLE, as_columns, content, frame, naive, read, write


def test_a_damaged_page_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"user": ["x"] * 999, "a": np.random.default_rng(1).random(999), "label": [1] * 999}), path)
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(1996)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"people.parquet cannot be read: .*\.$"):
        read(path)
    assert list(tmp_path.iterdir()) == [path]


def test_an_index_is_private_made_once_and_anew_when_something_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)
    index = tmp_path / "people.parquet.index"
    first = read(path)
    assert stat.S_IMODE(index.stat().st_mode) == 0o700
    made = index.stat().st_ino
    assert read(path).fingerprint() == first.fingerprint()
    assert index.stat().st_ino == made

    read(path, features=["a"])
    assert index.stat().st_ino != made
    changed = write(path, PEOPLE | {"a": [1.0, 2, 3, 4.5]})
    second = read(changed)
    assert second.load("eve")[0].tolist() == [[4.5, 8.0]]
    assert second.fingerprint() != first.fingerprint()
    assert first.load("eve")[0].tolist() == [[4.0, 8.0]]  # who has it open keeps what it had

    state = path.stat()
    write(path, PEOPLE | {"a": [1.0, 2, 3, 9.5]})
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert path.stat().st_size == state.st_size
    assert read(path).load("eve")[0].tolist() == [[9.5, 8.0]]  # seen by the footer alone


@pytest.mark.parametrize(
    "part", ["index.json", "inputs.npy", "targets.npy", "ends.npy", "names.npy", "name-ends.npy", "digests.npy"]
)
@pytest.mark.parametrize("how", ["short", "absent", "nonsense", "of another"])
def test_a_damaged_index_is_made_anew(part: str, how: str, tmp_path: Path) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)
    whole = content(read(path))
    file = tmp_path / "people.parquet.index" / part
    if how == "absent" and part != "index.json":
        file.unlink()
    elif how == "short" and part != "index.json":
        file.write_bytes(file.read_bytes()[:-1])
    elif how == "of another" and part != "index.json":
        np.save(file, np.load(file)[:-1])
    elif part == "index.json":
        facts = json.loads(file.read_text())
        del facts["are_numbers" if how == "short" else "inputs" if how == "absent" else "columns"]
        file.write_text(json.dumps(facts))
    else:
        file.write_bytes(b"nonsense")
    assert content(read(path)) == whole


def test_a_place_for_the_index(tmp_path: Path) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)
    place = tmp_path / "elsewhere"
    place.mkdir()
    assert content(read(path, index=place)) == content(read(path))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").write_text("years of work")
    for name in ("thesis", "people.parquet"):
        with pytest.raises(InputError, match=f"index = '.*{name}' is in the way: it is no index"):
            read(path, index=tmp_path / name)
    assert (tmp_path / "thesis" / "chapter1").read_text() == "years of work"
    with pytest.raises(
        InputError, match=r"index = '.*place' cannot be made: No such file or directory; another folder"
    ):
        read(path, index=tmp_path / "no" / "place")


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be made: No space left on device"):
        read(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)

    def group(*arguments: Any) -> Any:
        os.utime(path)
        return nestegg.data.grouping.group(*arguments)

    monkeypatch.setattr(nestegg.data.parquet, "group", group)
    with pytest.raises(InputError, match=r"people.parquet changed while it was read."):
        read(path)
    assert list(tmp_path.iterdir()) == [path]


def in_a_fork(work: Callable[[], object]) -> int:
    """The number of a process that does something, and ends with 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("step", ["group", "samples", "write_index", "sync_folder"])
def test_a_killed_maker_leaves_no_index_and_the_next_makes_it(step: str, tmp_path: Path) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)
    index = tmp_path / "people.parquet.index"
    module = nestegg.data.index if step == "sync_folder" else nestegg.data.parquet

    def make_and_die() -> None:
        setattr(module, step, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        read(path)

    assert ended(in_a_fork(make_and_die)) == -signal.SIGKILL
    assert not index.exists()
    assert (tmp_path / ".people.parquet.index.new").exists()
    assert content(read(path)) == content(frame(PEOPLE))
    assert sorted(tmp_path.iterdir()) == [path, index]


def test_who_comes_while_an_index_is_made_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "people.parquet", PEOPLE)
    children: list[int] = []

    def open_without_making(ready: int) -> None:
        def locked(folder: Path) -> Any:
            os.write(ready, b"!")
            return nestegg.data.index.locked(folder)

        monkeypatch.setattr(nestegg.data.parquet, "locked", locked)
        monkeypatch.setattr(nestegg.data.parquet, "replacing", None)
        read(path)

    def group(*arguments: Any) -> Any:
        wait, ready = os.pipe()
        children.append(in_a_fork(lambda: open_without_making(ready)))
        assert os.read(wait, 1) == b"!"
        return nestegg.data.grouping.group(*arguments)

    monkeypatch.setattr(nestegg.data.parquet, "group", group)
    read(path)
    assert list(map(ended, children)) == [0]


def test_threads_that_make_the_same_index(tmp_path: Path) -> None:
    rows = [(f"c{i % 50}", float(i), 1.0, 1) for i in range(500)]
    path = write(tmp_path / "people.parquet", as_columns(rows))
    prints: list[bytes] = []
    threads = [threading.Thread(target=lambda: prints.append(read(path).fingerprint())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert prints == [frame(as_columns(rows)).fingerprint()] * 4
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["people.parquet", "people.parquet.index"]


def test_forked_processes_and_threads_share_an_index(tmp_path: Path) -> None:
    rows = [(f"c{i % 500}", float(i), 1.0, i) for i in range(5000)]
    source = read(write(tmp_path / "people.parquet", as_columns(rows)))
    expected = naive(rows)
    wrong: list[str] = []

    def look(seed: int) -> None:
        stream = np.random.default_rng(seed)
        for _ in range(50):
            chosen = stream.integers(500, size=20)
            _, y, _ = source.load_rows(chosen)
            if y.tolist() != [row[-1] for at in chosen for row in expected[source.names[at]]]:
                wrong.append(f"seed {seed}")

    def look_and_count() -> None:
        look(0)
        assert wrong == []

    child = in_a_fork(look_and_count)
    threads = [threading.Thread(target=look, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert ended(child) == 0


@pytest.mark.parametrize("is_cached", [True, False])
def test_rows_are_announced_unless_they_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    source = Floats(read(write(tmp_path / "people.parquet", PEOPLE)))
    announced: list[bytes] = []

    def noted(file: int, offset: int, length: int, advice: int) -> None:
        announced.append(os.pread(file, length, offset))
        raise OSError("a file system that takes no advice")

    def reading(*arguments: Any) -> bool:
        read_runs(*arguments)
        return is_cached

    monkeypatch.setattr(nestegg.data.tables, "read_runs", reading)
    monkeypatch.setattr(os, "posix_fadvise", noted, raising=False)
    source.load_rows(np.array([0]))
    announced.clear()
    source.announce_rows(np.array([1, 0]))
    expected = [part.numpy().tobytes() for part in source.load_rows(np.array([1, 0]))[:2]]
    assert b"".join(announced) == (b"" if is_cached else b"".join(expected))
