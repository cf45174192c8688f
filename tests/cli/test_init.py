"""`nestegg init`: what it writes runs as it is, and nothing is overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nestegg.configuration.config import NEWEST, load_config
from tests.configuration.test_parquet import parquet
from tests.conftest import Run

ROOT = Path(__file__).parents[2]
LABELLED = ["--data", "people.parquet", "--client", "user", "--target"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trains(run: Run, config: Path) -> dict[str, object]:
    """Whether a configuration plans and trains as it is."""
    planned = run("plan", config)
    assert planned.code == 0, planned.err
    done = run("run", config, "--out", config.parent / "out", "--json")
    assert done.code == 0, done.err
    summary: dict[str, object] = json.loads(done.out)
    return summary


def test_one_of_our_datasets_is_the_default(run: Run, tmp_path: Path) -> None:
    done = run("init")
    assert done.code == 0
    assert "Written: config.toml. Look at the plan: nestegg plan config.toml" in done.out
    assert load_config("config.toml").format == NEWEST
    assert "format = " in Path("config.toml").read_text().splitlines()[0]
    accuracy = trains(run, tmp_path / "config.toml")["final_accuracy"]
    assert isinstance(accuracy, float)
    assert accuracy > 30.0
    again = run("init")
    assert (again.code, again.out) == (2, "")
    assert "config.toml exists" in again.err


@pytest.mark.parametrize("name", ["mnist", "adult"])
def test_other_datasets_are_named(name: str, run: Run) -> None:
    assert run("init", "new/folder", "--dataset", name).code == 0
    assert load_config("new/folder/config.toml").federation.dataset == name
    assert f"nestegg data get {name}" in Path("new/folder/config.toml").read_text()


def elsewhere(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own: modules beside other configurations may have the same name."""
    command = [sys.executable, "-m", "nestegg", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_code_of_ones_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    assert elsewhere("init", mine, "--own").returncode == 0
    done = elsewhere("run", mine / "config.toml", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "my_problem:model"
    (mine / "config.toml").unlink()
    refused = elsewhere("init", mine, "--own")
    assert refused.returncode == 2
    assert "my_problem.py exists" in refused.stderr
    assert not (mine / "config.toml").exists()


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("test", [False, True])
def test_a_parquet_file(numbers: bool, test: bool, run: Run, tmp_path: Path) -> None:
    parquet(tmp_path / "people.parquet", 1, numbers)
    parquet(tmp_path / "test.parquet", 2, numbers)
    more = ["--test", "test.parquet"] if test else [] if numbers else ["--classes", "2"]
    assert run("init", "c", "--data", "people.parquet", "--client", "user", "--target", "label", *more).code == 0
    summary = trains(run, tmp_path / "c" / "config.toml")
    assert (summary["final_accuracy"] is not None) == (test and not numbers)
    assert (summary["final_loss"] is not None) == test


def test_true_and_false_are_two_labels(run: Run) -> None:
    rows = {"user": ["a", "b"] * 10, "ill": [True, False] * 10, "x": [0.5] * 20}
    pq.write_table(pa.table(rows), "people.parquet")
    assert run("init", "--data", "people.parquet", "--client", "user", "--target", "ill").code == 0
    assert load_config("config.toml").federation.classes == 2


def test_names_of_columns_are_quoted_and_labels_may_have_no_sign(run: Run, tmp_path: Path) -> None:
    labels = pa.array([1], pa.uint8())
    pq.write_table(pa.table({'the "user"': ["a"], "y\\n": labels, "x": [0.5]}), "odd é.parquet")
    assert (
        run("init", "--data", "odd é.parquet", "--client", 'the "user"', "--target", "y\\n", "--classes", 2).code == 0
    )
    federation = load_config("config.toml").federation
    assert (federation.client_column, federation.target_column) == ('the "user"', "y\\n")
    assert federation.dataset == str(tmp_path / "odd é.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "people.parquet", "--own"], "give one of --data, --dataset, --recipe, --own and --examples."),
        (
            ["--data", "people.parquet"],
            "--client is missing; people.parquet has the columns height, label, user, weight",
        ),
        (["--data", "people.parquet", "--client", "user"], "--target is missing; people.parquet has the columns"),
        (["--data", "people.parquet", "--client", "usr", "--target", "label"], "Did you mean 'user'?"),
        (["--data", "people.csv"], "--data = 'people.csv' must be a Parquet file"),
        (["--data", "nobody.parquet"], "nobody.parquet cannot be read: there is no such file."),
        (["--data", "text.parquet"], "text.parquet cannot be read as a Parquet file"),
        (["--dataset", "digit"], "Did you mean 'digits'?"),
        (["--client", "user"], "--client, --target, --test and --classes belong to --data."),
        ([*LABELLED, "label"], "give --test FILE.parquet, public data, or --classes N, how many labels there are"),
        ([*LABELLED, "label", "--classes", "2", "--test", "people.parquet"], "--classes = 2 must be left out"),
        ([*LABELLED, "label", "--classes", "1"], "--classes = 1 must be a whole number, from 2 to 1000000."),
        ([*LABELLED, "label", "--classes", "100000000000"], "must be a whole number, from 2 to 1000000."),
        ([*LABELLED, "height", "--classes", "3"], "--classes = 3 must be 1, or left out: the column 'height' is of"),
        (["--data", "people.parquet", "--client", "label", "--target", "user"], "--target = 'user' is of type string"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(
    arguments: list[str], message: str, run: Run, tmp_path: Path
) -> None:
    parquet(tmp_path / "people.parquet", 1)
    Path("text.parquet").write_text("This is no such file.")
    refused = run("init", "new", *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert not Path("new").exists()


def test_all_examples_are_copied_as_a_clone_has_them(run: Run) -> None:
    done = run("init", "new", "--examples")
    assert (done.code, done.err) == (0, "")
    assert "Written: new/examples. Look at the plan: nestegg plan new/examples/digits.toml" in done.out
    folder = ROOT / "examples"
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(names) > 15
    assert all((Path("new/examples") / name).read_bytes() == (folder / name).read_bytes() for name in names)
    assert run("plan", "new/examples/fashion-mnist.toml", "--json").code == 0
    Path("new/examples/gains.py").write_text("mine\n")
    again = run("init", "new", "--examples")
    assert (again.code, again.out) == (2, "")
    assert Path("new/examples/gains.py").read_text() == "mine\n"
