"""A measurement of memory that is interrupted, damaged, or shared by processes: the same result to the bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nestegg
from nestegg.runs import influence
from nestegg.runs.processes import as_done
from nestegg.training import kept
from tests.conftest import Run
from tests.training.memories import CONFIG, ROUNDS, bowl, squares


def interrupting(after: int) -> Callable[[int, int], None]:
    """Somebody who interrupts as soon as some measurements are done."""

    def tell(done: int, _: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    return tell


def counted(counts: list[int]) -> Callable[[int, int], None]:
    return lambda done, _: counts.append(done)


def test_what_was_interrupted_goes_on_to_the_same_bit(tmp_path: Path) -> None:
    path, counts = tmp_path / "influence.json.part", list[int]()
    right = nestegg.measure_influence(bowl(), points=3, draws=2)
    with pytest.raises(nestegg.StoppedError, match=r"kept in .*influence.json.part; the same command or call goes on"):
        nestegg.measure_influence(bowl(), points=3, draws=2, keep=path, tell=interrupting(3))
    found = nestegg.measure_influence(bowl(), points=3, draws=2, keep=path, tell=counted(counts))
    assert found == right
    assert counts == [3, 4, 5, 6]
    with pytest.raises(KeyboardInterrupt):  # without a file there is nothing to go on with
        nestegg.measure_influence(bowl(), points=3, draws=2, tell=interrupting(1))


def cut_short(text: str) -> str:
    return text.rstrip()[:-5]


def another_number(text: str) -> str:
    """Lines whose seals hold, but for a digit."""
    return text.replace('"rise": 0.', '"rise": 1.')


def of_another_round(text: str) -> str:
    return text.replace('"round": 1,', '"round": 4,')


def not_json(text: str) -> str:
    return text.replace("{", "[[") + "\n7\nnull\n\x00\xff\n" + "[" * 100_000


@pytest.mark.parametrize(
    ("damage", "left"),
    [(cut_short, 5), (another_number, 0), (of_another_round, 4), (not_json, 0), (lambda text: "", 0)],
)
def test_damaged_lines_are_measured_again(tmp_path: Path, damage: Callable[[str], str], left: int) -> None:
    path, counts = tmp_path / "part", list[int]()
    right = nestegg.measure_influence(bowl(), points=3, draws=2, keep=path)
    path.write_text(damage(path.read_text()))
    assert nestegg.measure_influence(bowl(), points=3, draws=2, keep=path, tell=counted(counts)) == right
    assert counts[0] == left
    again = list[int]()
    assert nestegg.measure_influence(bowl(), points=3, draws=2, keep=path, tell=counted(again)) == right
    assert again == [6]


@pytest.mark.parametrize(
    "changes",
    [
        {"local": nestegg.LocalTraining(1, 2, learning_rate=0.5, momentum=0.0, loss=squares)},
        {"local": nestegg.LocalTraining(2, 2, learning_rate=0.9, momentum=0.0, loss=squares)},
        {"test": (torch.ones(1, 1), torch.zeros(1) + 2.0)},
    ],
)
def test_measurements_of_another_training_are_not_used(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Though on this bowl all of them have the same models after every round."""
    path, counts = tmp_path / "part", list[int]()
    nestegg.measure_influence(bowl(), points=3, draws=2, keep=path)
    found = nestegg.measure_influence(bowl(**changes), points=3, draws=2, keep=path, tell=counted(counts))
    assert counts[0] == 0
    assert found == nestegg.measure_influence(bowl(**changes), points=3, draws=2)
    more = list[int]()
    nestegg.measure_influence(bowl(), points=ROUNDS, draws=2, keep=path, tell=counted(more))
    assert more[0] == 6  # of the rounds that were measured before, among more
    nestegg.measure_influence(bowl(), points=3, draws=2, seed=1, keep=path, tell=counted(more))
    assert more[-7] == 0  # other noise


@pytest.mark.parametrize("keep", [".", "nowhere/part"])
def test_a_file_that_cannot_be_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, keep: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nestegg.Federation, "round", None)
    with pytest.raises(nestegg.InputError, match="must be a file in a folder that exists"):
        nestegg.measure_influence(bowl(), keep=keep)
    (tmp_path / "mine.toml").write_text(CONFIG)
    refused = run("influence", "mine.toml", "--public", "digits", "--out", keep)
    assert refused.code == 2
    assert "must be a file in a folder that exists" in refused.err


def influence_of(folder: Path, *options: str) -> list[str]:
    (folder / "mine.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "nestegg", "influence", str(folder / "mine.toml"), "--public", "digits"]
    return [*command, "--points", "3", "--draws", "2", "--out", str(folder / "influence.json"), *options]


KILLED = """
import os, signal, sys
from nestegg.runs import influence
from nestegg.runs.processes import as_done
from nestegg.training import kept
blow = getattr(signal, sys.argv.pop(1))
signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, as by nohup, children ignore it too
add, places = kept.Kept.add, []
def killing(self, place, value):
    add(self, place, value)
    places.append(place)
    if len(places) == 2:
        os.kill(os.getpid(), blow)
kept.Kept.add = killing
sys.argv[0] = "nestegg"
from nestegg.cli import main
main()
"""


def test_an_interrupted_command_says_how_it_goes_on(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = influence_of(tmp_path)[3:]
    assert run(*arguments).code == 0
    part, written = tmp_path / "influence.json.part", (tmp_path / "influence.json").read_bytes()
    (tmp_path / "influence.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(kept.Kept, "add", adding_until(4))
        stopped = run(*arguments)
    assert stopped.code == 3
    assert f"Finished measurements are kept in {part}; the same command or call goes on." in stopped.err
    assert part.read_text().count('"rise"') == 4
    assert run(*arguments).code == 0
    assert (tmp_path / "influence.json").read_bytes() == written
    assert not part.exists()


def adding_until(last: int) -> Callable[[kept.Kept, kept.Place, float], None]:
    add, places = kept.Kept.add, list[kept.Place]()

    def interrupted(self: kept.Kept, place: kept.Place, value: float) -> None:
        add(self, place, value)
        places.append(place)
        if len(places) == last:
            raise KeyboardInterrupt

    return interrupted


@pytest.mark.slow
@pytest.mark.parametrize(("blow", "code"), [("SIGKILL", -9), ("SIGINT", 3)])
def test_the_command_goes_on_after_a_blow(tmp_path: Path, blow: str, code: int) -> None:
    (tmp_path / "once").mkdir()
    command = influence_of(tmp_path, "--jobs", "1")
    died = subprocess.run([sys.executable, "-c", KILLED, blow, *command[3:]], capture_output=True, text=True)
    assert died.returncode == code, died.stderr
    assert ("the same command or call goes on" in died.stderr) == (blow == "SIGINT")
    part = tmp_path / "influence.json.part"
    assert part.read_text().count('"rise"') == 2
    for folder in (tmp_path, tmp_path / "once"):
        subprocess.run(influence_of(folder, "--jobs", "1"), check=True, capture_output=True)
    assert (tmp_path / "influence.json").read_bytes() == (tmp_path / "once" / "influence.json").read_bytes()
    assert not part.exists()


@pytest.mark.slow
def test_the_number_of_processes_changes_no_bit(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[int]()

    def counted_jobs(work: Any, items: Any, jobs: int, cluster: str | None, gpus: int) -> Any:
        assert (cluster, gpus) == (None, 0)
        used.append(jobs)
        return as_done(work, items, jobs)

    monkeypatch.setattr(influence, "as_done", counted_jobs)
    monkeypatch.setattr(influence, "cores", lambda: 2)
    written = []
    for options, long in ((("--jobs", "1"), 0.0), (("--jobs", "3"), 1e9), ((), 0.0), ((), 1e9)):
        monkeypatch.setattr(influence, "_LONG", long)
        assert run(*influence_of(tmp_path, *options)[3:]).code == 0
        written.append((tmp_path / "influence.json").read_bytes())
    assert used == [3, 2]
    assert len(set(written)) == 1
