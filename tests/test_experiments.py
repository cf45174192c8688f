"""The paper's evaluation: what its files say, what cells are, and what verdicts follow."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nestegg.config import Config, changed
from nestegg.experiments import cells as cells_module
from nestegg.experiments import definition, outcomes, runner
from nestegg.experiments.cells import FORMAT, Cell, Store, hash_of, measure
from nestegg.experiments.definition import Row, load, names
from nestegg.experiments.figures import curve_rows
from nestegg.experiments.outcomes import Duel, Line, Number, Outcome, outcome_of
from nestegg.experiments.pages import markdown
from nestegg.experiments.rows import number_rows, wide_rows
from nestegg.experiments.scales import configured, scaled, stated_reduction
from nestegg.experiments.views import charts
from nestegg.runs import start_run

from .conftest import Run

PAPER = Path(__file__).parents[2] / "shared" / "paper.tex"


def config_of(name: str, row: int = 0, column: str = "idp-fedavg", scale: str = "smoke", seed: int = 0) -> Config:
    experiment = load(name)
    wanted = next(one for one in experiment.columns if one.name == column)
    return configured(experiment.cell(experiment.rows[row], wanted), scale, seed)


@pytest.fixture(scope="module")
def cell() -> Cell:
    return measure(config_of("table-accuracy"))


# What the files say.


def test_every_table_and_figure_of_the_paper_is_there() -> None:
    figures = ["accuracy", "spending", "training-loss", "more-rounds", "strict-budgets"]
    tables = ["accuracy", "more-rounds", "strict-budgets", "strict-uniform", "clients", "saving-rates", "transitions"]
    theirs = {*(f"figure-{name}" for name in figures), *(f"table-{name}" for name in tables), "table-cifar10"}
    ours = {"figure-noise", "clip-choice", "clip-unit", "tuning-clip", "tuning-adaptive"}
    assert theirs | ours == set(names())


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


def test_the_main_table_is_the_papers_setting_to_the_letter() -> None:
    fmnist, mnist, adult = (config_of("table-accuracy", row, "ours", "full") for row in range(3))
    for config, clients, epochs, batch, rate in ((fmnist, 100, 30, 125, 0.001), (adult, 80, 5, 32, 0.01)):
        assert config.federation.clients == clients
        assert config.federation.samples_per_client is None
        assert (config.federation.partition, config.federation.dirichlet) == ("dirichlet", 0.1)
        training = config.training
        assert (training.rounds, training.local_epochs, training.batch_size) == (25, epochs, batch)
        assert (training.learning_rate, training.momentum, training.schedule) == (rate, 0.9, "cosine")
        privacy = config.privacy
        assert (privacy.spending_rate, privacy.clip_norm, privacy.delta) == (0.9, 250, 1e-5)
        assert (privacy.clipping, privacy.clip_unit, privacy.composition) == ("per-layer", "gradient", "paper")
        assert [group.share for group in privacy.groups] == [0.34, 0.43, 0.23]
        assert [group.transition for group in privacy.groups] == [13] * 3
    assert [group.epsilon for group in mnist.privacy.groups] == [10, 15, 20]
    assert [group.saving_rate for group in fmnist.privacy.groups] == [0.5, 0.6, 0.7]
    assert [group.saving_rate for group in adult.privacy.groups] == [0.6, 0.7, 0.8]


@pytest.mark.parametrize("name", names())
def test_cpu_scale_changes_only_what_it_states(name: str) -> None:
    experiment = load(name)
    for row in experiment.shown_rows():
        for column in experiment.columns:
            setting = experiment.cell(row, column)
            small, samples = scaled(setting, "cpu")
            kept = ("method", "dataset", "clients", "rounds", "epsilon", "saving_rate", "transition", "spending_rate")
            assert all(getattr(small, key) == getattr(setting, key) for key in kept)
            stretch = small.learning_rate / setting.learning_rate if setting.clip_unit == "gradient" else 1.0
            assert math.isclose(small.clip_norm * stretch, setting.clip_norm, rel_tol=2e-3)
            sentence = stated_reduction(setting, "cpu")
            if samples is None:
                assert small == setting
                assert "nothing is reduced" in sentence
            else:
                steps = math.ceil(samples / small.batch_size) * small.local_epochs
                images = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000}[setting.dataset]
                theirs = math.ceil(images / setting.clients / setting.batch_size) * setting.local_epochs
                assert math.isclose(steps * small.learning_rate, theirs * setting.learning_rate, rel_tol=2e-3)
                times = f"{small.learning_rate / setting.learning_rate:.4g} times"
                for number in (samples, small.batch_size, f"{small.learning_rate:g}", f"λ {times} larger"):
                    assert str(number) in sentence
                assert (f"c {times} smaller" in sentence) == (setting.clip_unit == "gradient")


def test_rows_appear_again_at_the_chosen_clip_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition, "chosen_clip_norms", lambda: {"mnist": 1000.0})
    shown = load("table-accuracy").shown_rows()
    assert [row.name for row in shown] == ["fmnist", "mnist", "mnist-chosen", "adult"]
    assert [row.label for row in shown][1:3] == ["MNIST, c = 250 (stated)", "MNIST, c = 1000 (chosen)"]
    assert [row.setting["clip_norm"] for row in shown] == [250, 250, 1000, 250]
    assert shown[1].paper == shown[2].paper


def test_no_reported_seed_takes_part_in_a_choice() -> None:
    for name in names():
        seeds = load(name).seeds
        assert seeds == ([100] if name.startswith("tuning") else [0, 1, 2])


def test_an_experiment_is_added_by_adding_a_file(run: Run, tmp_path: Path) -> None:
    """The file that docs/experiments.md shows."""
    page = (Path(__file__).parents[1] / "docs" / "experiments.md").read_text()
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


# Cells.


def test_a_cell_is_what_a_run_of_its_configuration_gives(cell: Cell, tmp_path: Path) -> None:
    summary = start_run(config_of("table-accuracy"), tmp_path / "run")
    assert cell.final == pytest.approx(summary["final_accuracy"], abs=1e-3)
    assert [group["epsilon_here"] for group in summary["groups"]] == pytest.approx(cell.epsilon_spent, rel=1e-3)
    curve = [json.loads(line)["accuracy"] for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert cell.accuracy == pytest.approx(curve, abs=1e-3)
    assert len(cell.training_loss) == len(curve)


def test_curves_take_few_test_samples_and_the_end_takes_all(monkeypatch: pytest.MonkeyPatch, cell: Cell) -> None:
    monkeypatch.setattr(cells_module, "CURVE_SAMPLES", 20)
    few = measure(config_of("table-accuracy"))
    assert few.final == cell.final
    assert few.accuracy[:-1] != cell.accuracy[:-1]


def test_cells_that_train_the_same_are_the_same() -> None:
    def hashes(column: str, *rows: tuple[str, int]) -> set[str]:
        return {hash_of(config_of(name, row, column, "cpu")) for name, row in rows}

    assert len(hashes("dp-fedavg", ("table-accuracy", 0), ("table-strict-uniform", 0))) == 1
    assert len(hashes("fedavg", ("table-accuracy", 0), ("table-saving-rates", 4), ("table-transitions", 5))) == 1
    assert len(hashes("idp-fedavg", ("table-accuracy", 0), ("table-transitions", 4), ("table-transitions", 5))) == 1
    assert len(hashes("ours", ("table-transitions", 4), ("table-transitions", 5))) == 2
    assert config_of("table-accuracy", scale="cpu").model.name == "cnn"  # a hash knows the network
    assert hashes("exact", ("table-accuracy", 0)) != hashes("exact-pld", ("table-accuracy", 0))


def test_a_hash_does_not_know_the_seed_or_where_things_are() -> None:
    config = config_of("table-accuracy")
    others = [
        changed(config, "training", seed=5),
        changed(config, "training", workers=2),
        changed(config, "federation", data="/elsewhere"),
    ]
    assert {hash_of(one) for one in others} == {hash_of(config)}
    assert hash_of(changed(config, "privacy", clip_norm=9.0)) != hash_of(config)


def test_a_store_gives_back_what_it_was_given(cell: Cell, tmp_path: Path) -> None:
    store, config = Store(tmp_path), config_of("table-accuracy")
    assert store.get(config) is None
    store.put(cell)
    assert store.get(config) == cell
    assert store.get(changed(config, "training", seed=1)) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('"accuracy": [1', '"accuracy": [2'),
        lambda text: text.replace('"seed": 0', '"seed": 1', 1),
        lambda text: text.replace('"format": 2', '"format": 1'),
        lambda text: text.replace('"format": 2', '"format": 3'),
        lambda text: "[1, 2]",
        lambda text: "[" * 100_000,
        lambda text: '{"format": 2}',
    ],
)
def test_a_damaged_cell_is_run_again_and_nothing_else(cell: Cell, tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    store, config, other = Store(tmp_path), config_of("table-accuracy"), config_of("table-accuracy", column="fedavg")
    store.put(cell)
    store.put(measure(other))
    before = store.path(other).stat().st_mtime_ns
    broken = damage(store.path(config).read_text())
    assert broken != store.path(config).read_text()
    store.path(config).write_text(broken)
    assert store.get(config) is None
    ran: list[Cell] = []
    runner.run_cells([config, other], store, 1, lambda _, done: ran.append(done))
    assert [done.hash for done in ran] == [cell.hash]
    assert store.get(config) is not None
    assert store.path(other).stat().st_mtime_ns == before


def remade(cell: Cell, **values: Any) -> Cell:
    """A sound cell that differs in these values."""
    made = cell.model_copy(update={**values, "digest": ""})
    return made.model_copy(update={"digest": cells_module._digest(made)})


def test_a_store_has_cells_of_both_formats_and_gives_the_newer(cell: Cell, tmp_path: Path) -> None:
    store, config = Store(tmp_path), config_of("table-accuracy")
    assert cell.format == FORMAT == 2
    old = remade(cell, format=1, accuracy=[1.0, 2.0, 3.0])
    store.put(old)
    assert store.get(config) == old
    assert [path.name for path in store.folder.iterdir()] == [f"{cell.hash}-0.json"]  # as it always was
    runner.run_cells([config], store, 1, lambda *_: pytest.fail("it is there"))
    store.put(cell)
    assert store.get(config) == cell
    assert store.find(config) == {2: cell, 1: old}
    store.path(config, 1).rename(store.path(config, 2))  # a name that says another format
    assert store.get(config) is None


def test_cells_of_adult_from_before_its_public_scaling_do_not_count(cell: Cell, tmp_path: Path) -> None:
    store, config = Store(tmp_path), config_of("table-accuracy", 2, scale="cpu")
    assert config.federation.dataset == "adult"
    made = remade(cell, hash=hash_of(config), accuracy=[80.0] * 25, format=1)
    store.put(made)
    assert store.get(config) is None
    store.put(remade(made, format=2))
    assert store.get(config) is not None


@pytest.mark.slow
def test_processes_change_no_result(tmp_path: Path) -> None:
    configs = [config_of("table-accuracy", column=name) for name in ("fedavg", "idp-fedavg", "ours")]
    results = []
    for jobs in (1, 2):
        store = Store(tmp_path / str(jobs))
        runner.run_cells(configs, store, jobs, lambda *_: None)
        results.append([store.get(config) for config in configs])
    for one, two in zip(*results, strict=True):
        assert one is not None
        assert two is not None
        assert (one.accuracy, one.training_loss) == (two.accuracy, two.training_loss)


# Verdicts.


def entry(paper: float | None, *finals: float, asked: int | None = None) -> Number:
    made = tuple(
        Cell(format=1, hash="h", seed=seed, config={}, accuracy=[final], training_loss=[None], epsilon=[],
             epsilon_spent=[], seconds=0.0, digest="")
        for seed, final in enumerate(finals)
    )  # fmt: skip
    return Number(paper, "h", made, len(finals) if asked is None else asked)


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ([entry(70, 72.9), entry(60, 62)], "agrees in value"),
        ([entry(70, 71.5), entry(60, 58.6)], "agrees in value"),
        ([entry(70, 72.9), entry(60, 57.1)], "agrees in order of methods"),  # the difference is 5.8 points off
        ([entry(34.97, 37.8), entry(35.41, 32.6)], "does not agree"),
        ([entry(70, 74), entry(60, 60)], "agrees in order of methods"),
        ([entry(70, 66, 82), entry(60, 60, 60)], "agrees in order of methods"),
        ([entry(70, 50), entry(60, 55)], "does not agree"),
        ([entry(70.2, 50), entry(70, 55)], "agrees in order of methods"),  # the paper has them 0.2 points apart
        ([entry(70.5, 50), entry(70, 55)], "does not agree"),
        ([entry(70, 50), entry(60, 50)], "does not agree"),
        ([entry(None, 50)], "the paper states no number"),
        ([entry(70, asked=3), entry(60, asked=3)], "not run"),
        ([entry(70, 70, asked=3), entry(60, asked=3)], "not all of it run"),
        ([entry(70, 70, asked=3), entry(60, 60, asked=3)], "agrees in value (1 of 3 seeds)"),
        ([entry(70, 70, 40, asked=3), entry(60, 60, asked=3)], "agrees in value (1 of 3 seeds)"),
    ],
)
def test_verdicts_follow_the_stated_rule(numbers: list[Number], verdict: str) -> None:
    line = Line(Row(name="r", label="R"), {str(i): number for i, number in enumerate(numbers)}, ())
    assert line.verdict == verdict


def outcome_with(name: str, folder: Path, like: Cell, finals: dict[str, tuple[float, ...]]) -> Outcome:
    """An experiment of which these cells of the first row are there, with these accuracies for seeds 0, 1, …."""
    experiment, store = load(name), Store(folder)
    for column in experiment.columns:
        for seed, final in enumerate(finals.get(column.name, ())):
            config = configured(experiment.cell(experiment.rows[0], column), "smoke", seed)
            accuracy = [final - 20, final - 10, final]
            store.put(remade(like, hash=hash_of(config), seed=seed, accuracy=accuracy))
    return outcome_of(name, experiment, "smoke", store)


def test_curves_are_means_over_the_seeds_that_all_methods_have(tmp_path: Path, cell: Cell) -> None:
    outcome = outcome_with("figure-accuracy", tmp_path, cell, {"idp-fedavg": (50.0, 60.0, 70.0), "ours": (40.0, 44.0)})
    line = outcome.lines[0]
    points = [(row["method"], row["round"], row["value"]) for row in curve_rows(outcome, line)]
    assert points == [("IDP-FedAvg", 1, 35), ("IDP-FedAvg", 2, 45), ("Ours (paper)", 1, 22), ("Ours (paper)", 2, 32)]
    strangers = {name: line.numbers[name].over({seed}) for name, seed in (("idp-fedavg", 2), ("ours", 1))}
    assert charts(replace(outcome, lines=(replace(line, numbers=line.numbers | strangers),))) == {}


@pytest.mark.parametrize(("name", "legend"), [("table-accuracy", True), ("clip-unit", False)])
def test_a_legend_tells_ours_from_the_papers_where_both_are(
    name: str, legend: bool, tmp_path: Path, cell: Cell
) -> None:
    outcome = outcome_with(name, tmp_path, cell, {"idp-fedavg": (50.0,)})
    assert ('"orient": "bottom"' in charts(outcome)[name].to_json()) == legend


def test_a_duel_is_a_paired_t_test(tmp_path: Path, cell: Cell) -> None:
    finals: dict[str, tuple[float, ...]] = {
        "idp-fedavg": (50.0, 60.0, 55.0),
        "ours": (51.0, 62.0, 58.0),
        "exact": (50.9, 60.8, 56.1),
    }
    outcome = outcome_with("table-cifar10", tmp_path, cell, finals)
    ours, exact, printed = outcome.lines[0].duels  # PLD has no rival here: IDP-FedAvg is planned with RDP
    # Differences 1, 2, 3: t = 2 / (1 / √3) with two degrees of freedom.
    t = 2.0 * math.sqrt(3.0)
    assert ours.ahead == pytest.approx(2.0)
    assert ours.p == pytest.approx(1.0 - t / math.sqrt(2.0 + t * t))
    assert ours.verdict == "cannot be told apart"
    assert (exact.method, exact.rival, exact.seeds) == ("exact", "idp-fedavg", 3)
    assert exact.p is not None
    assert exact.p < 0.05
    assert exact.verdict == "beats"
    assert (printed.method, printed.rival) == ("exact", "ours")
    assert printed.ahead == pytest.approx(-16 / 15)
    equal = {column: entry(None, *(final + shift for final in (64.86, 77.5, 68.79))) for column, shift in
             (("ours", 1.01), ("idp-fedavg", 0.0))}  # fmt: skip
    tied = outcomes._duel("ours", "idp-fedavg", equal)
    assert tied is not None
    assert (tied.ahead, tied.p) == (pytest.approx(1.01), None)
    assert Duel("a", "b", -1.0, 0.01, 3).verdict == "is beaten by"
    broken = outcomes._duel("ours", "idp-fedavg", {"ours": entry(None, math.nan, 1.0), "idp-fedavg": entry(None, 1, 2)})
    assert broken is not None
    assert broken.verdict == "no test: not finite"
    assert Duel("a", "b", 1.0, None, 1).verdict == "one seed, no test"


def test_a_comparison_never_mixes_formats(tmp_path: Path, cell: Cell) -> None:
    old = remade(cell, format=1)
    outcome_with("table-cifar10", tmp_path, old, {"idp-fedavg": (50.0, 60.0, 55.0), "ours": (51.0, 62.0, 58.0)})
    outcome = outcome_with("table-cifar10", tmp_path, cell, {"idp-fedavg": (10.0,), "exact": (90.0, 91.0)})
    line = outcome.lines[0]
    assert line.numbers["idp-fedavg"].mean == pytest.approx(55.0)  # six cells of format 1 against three
    assert line.numbers["exact"].cells == ()
    assert [(duel.method, duel.rival) for duel in line.duels] == [("ours", "idp-fedavg")]
    assert outcome.formats == [
        "cifar10: cells of format 1 (noise in floating point, before the lattice).",
        "cifar10: 2 cells of another format are not shown.",
    ]
    heads, rows = wide_rows(outcome)
    assert "of another format" in {row[heads.index(line.row.label)] for row in rows if row[0] == "Ours (exact, RDP)"}
    assert {row[-2] for row in number_rows(outcome)} == {"1", "–"}
    # As many of each: the newest, and nothing of the others is in any mean or test.
    outcome = outcome_with(
        "table-cifar10", tmp_path, cell, {"idp-fedavg": (10.0, 11.0), "exact": (90.0, 91.0, 92.0), "ours": (20.0,)}
    )
    numbers = outcome.lines[0].numbers
    assert {cell.format for number in numbers.values() for cell in number.cells} == {2}
    assert (numbers["idp-fedavg"].mean, numbers["idp-fedavg"].others) == (10.5, 1)
    assert (numbers["ours"].mean, numbers["ours"].others) == (20.0, 2)
    assert [duel.seeds for duel in outcome.lines[0].duels] == [1, 2, 1]
    assert "1 of another format" in markdown(outcome)


def test_rows_of_one_dataset_have_one_format_and_other_datasets_their_own(tmp_path: Path, cell: Cell) -> None:
    """So that rows of a table, which words compare, do not differ in format."""
    experiment, store = load("table-saving-rates"), Store(tmp_path)
    (column,) = (column for column in experiment.columns if column.name == "ours")

    def put(row: Row, seed: int, form: int) -> None:
        config = configured(experiment.cell(row, column), "cpu", seed)
        store.put(remade(cell, hash=hash_of(config), seed=seed, format=form, accuracy=[50.0] * 25))

    for row in experiment.rows[:3]:  # MNIST
        put(row, 0, 1)
    put(experiment.rows[0], 1, 2)
    put(experiment.rows[3], 0, 2)  # FMNIST
    outcome = outcome_of("table-saving-rates", experiment, "cpu", store)
    found = {line.row.name: {cell.format for cell in line.numbers["ours"].cells} for line in outcome.lines}
    assert [found[row.name] for row in experiment.rows[:4]] == [{1}, {1}, {1}, {2}]
    assert len(outcome.formats) == 3
