"""The paper's tables and figures as files: what they say, and mistakes in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nestegg.experiments import definition
from nestegg.experiments.definition import load, names, tunings
from tests.conftest import Run

PAPER = Path(__file__).parents[3] / "shared" / "paper.tex"


def test_every_table_and_figure_of_the_paper_is_there() -> None:
    figures = ["accuracy", "spending", "training-loss", "more-rounds", "strict-budgets"]
    tables = ["accuracy", "more-rounds", "strict-budgets", "strict-uniform", "clients", "saving-rates", "transitions"]
    theirs = {*(f"figure-{name}" for name in figures), *(f"table-{name}" for name in tables), "table-cifar10"}
    ours = {"figure-noise", "clip-choice", "clip-unit", "tuning-clip", "tuning-adaptive", "tuning-rates"}
    ours |= {"when-to-spend", "when-to-spend-cnn", "recipe-choices", "what-privacy-costs"}
    ours |= {"small-networks", "a-day", "a-day-norms", "a-day-mnist", "a-day-strict", "a-day-rounds", "per-layer"}
    assert theirs | ours == set(names())
    assert len(names()) == len(list(definition.FOLDER.glob("[0-9]*.toml")))  # no two of one name


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not beside the project")
@pytest.mark.parametrize("name", [name for name in names() if name.startswith("table")])
def test_the_papers_numbers_are_the_papers(name: str) -> None:
    """Every row's numbers stand, in the order of our columns, in one row of the paper's table."""
    experiment, text = load(name), PAPER.read_text()
    (label,) = re.findall(r"\((tab:\w+)\)", experiment.source)
    (table,) = [part for part in text.split(r"\begin{table}") if rf"\label{{{label}}}" in part]
    printed = [
        [float(number) for number in re.findall(r"(?<![\d.])\d\d\.\d+", line)]
        for line in table.split(r"\end{table}")[0].split(r"\\")
    ]
    across = name in ("table-saving-rates", "table-transitions")  # there our rows are the paper's columns
    for row in experiment.rows:
        wanted = [row.paper[column.name] for column in experiment.columns if column.name in row.paper]
        assert wanted
        if across:
            wanted = [row.paper["fedavg"], row.paper["ours"], row.paper["idp-fedavg"]]
        found = [line for line in printed if [number for number in line if number in wanted] == wanted]
        assert found, (row.name, wanted)


def test_rows_appear_again_at_the_chosen_clip_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition, "chosen_clip_norms", lambda: {"mnist": 1000.0})
    shown = load("table-accuracy").shown_rows()
    assert [row.name for row in shown] == ["fmnist", "mnist", "mnist-chosen", "adult"]
    assert [row.label for row in shown][1:3] == ["MNIST, c = 250 (stated)", "MNIST, c = 1000 (chosen)"]
    assert [row.setting["clip_norm"] for row in shown] == [250, 250, 1000, 250]
    assert shown[1].paper == shown[2].paper


@pytest.mark.no_cover
def test_no_reported_seed_takes_part_in_a_choice() -> None:
    for name in (*names(), *tunings()):
        seeds = load(name).seeds
        is_choice = "tuning" in name or name in ("recipe-choices", "small-networks")
        assert seeds == [100] if is_choice else seeds == list(range(len(seeds)))


def test_an_experiment_is_added_by_adding_a_file(run: Run, tmp_path: Path) -> None:
    """The file that docs/experiments.md shows."""
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.toml").write_text(text)
    out = ("--results", tmp_path / "results", "--out", tmp_path / "out")
    result = run("reproduce", tmp_path / "mine.toml", "--scale", "smoke", "--seeds", 1, "--jobs", 1, *out)
    assert result.code == 0
    assert "Do clients lose by saving longer?" in result.out
    assert (tmp_path / "out" / "mine.csv").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rounds = 25", "rounds = 25\nround = 3", "round is not a known key. Did you mean 'rounds'?"),
        ("rounds = 25\n", "", "rounds is missing"),
        ("ours = 73.34", "our = 73.34", "our' must be one of"),
        ('shows = "accuracy"', 'shows = "everything"', "shows = 'everything'"),
        ('method = "paper"', 'method = "papr"', "method = 'papr' must be one of"),
        ('rivals = ["idp-fedavg"]', 'rivals = ["idp"]', "rivals = 'idp' must be one of"),
        ("[13, 13, 13]", "[13, 13, 26]", "transition = 26 must be a whole number, from 1 to 25."),
        ("[0.5, 0.6, 0.7]", "[0.5, 0.6, 0.95]", "saving_rate = 0.95 must be above 0 and at most spending_rate = 0.9."),
        ("[0.5, 0.6, 0.7]", "[0.5, 0.6]", "saving_rate"),
        ("rounds = 25", "rounds = 0", "rounds = 0"),
        ("clip_norm = 250", "clip_norm = nan", "clip_norm = nan"),
        ("[10, 20, 30]", "[inf, 20, 30]", "epsilon"),
        ('name = "clients-60"', 'name = "clients-30"', "must not name anything twice"),
        ('shows = "accuracy"', 'shows = "accuracy"\nseeds = []', "seeds = []"),
        ('shows = "accuracy"', 'shows = "accuracy"\nseeds = [1, 1]', "must not name anything twice"),
        ('dataset = "mnist"', 'dataset = "mnst"', "dataset = 'mnst' must be one of"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(run: Run, tmp_path: Path, old: str, new: str, words: str) -> None:
    text = (definition.FOLDER / "10-table-clients.toml").read_text()
    assert old in text
    (tmp_path / "mine.toml").write_text(text.replace(old, new))
    where = ("--results", tmp_path / "results", "--out", tmp_path / "out")
    result = run("reproduce", tmp_path / "mine.toml", "--scale", "smoke", *where)
    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "out").exists()
