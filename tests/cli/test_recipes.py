"""Recipes: each loads, keeps every budget by another account than ours, is what its comment says, and can be copied."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from nestegg.cli import templates
from nestegg.configuration.config import load_config
from nestegg.configuration.limits import check_config
from nestegg.configuration.participants import make_plan
from nestegg.data.catalogue import needed
from tests.conftest import Run
from tests.oracles import gaussian_delta

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "recipes"
NAMES = templates.recipes()
PAPERS = {
    "digits": (50, 25, (10.0, 20.0, 30.0)),
    "mnist": (100, 25, (10.0, 15.0, 20.0)),
    "fashion-mnist": (100, 25, (10.0, 20.0, 30.0)),
    "adult": (80, 25, (10.0, 20.0, 30.0)),
    "cifar10": (100, 50, (100.0, 50.0, 25.0)),
}


def test_every_dataset_has_a_recipe_and_a_strict_one() -> None:
    assert sorted([*PAPERS, *(f"{name}-strict" for name in PAPERS if name != "digits")]) == NAMES
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.toml" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_at_its_budgets_and_keeps_them(name: str) -> None:
    config = load_config(FOLDER / f"{name}.toml")
    check_config(config)
    dataset = name.removesuffix("-strict")
    clients, rounds, budgets = PAPERS[dataset]
    plan = make_plan(config)
    assert (config.federation.dataset, plan.clients, plan.rounds, plan.delta) == (dataset, clients, rounds, 1e-5)
    stated = tuple(row.group.budget.epsilon for row in plan.groups)
    assert stated == ((2.0, 5.0, 10.0) if name.endswith("-strict") else budgets)
    for row in plan.groups:
        assert set(row.sampling_rate) == {1.0}  # so that the account is one number, which the oracle knows
        mu = math.sqrt(sum(sigma**-2 for sigma in row.noise_multiplier))
        epsilon = row.group.budget.epsilon
        assert gaussian_delta(mu, epsilon) <= plan.delta < gaussian_delta(mu, 0.999 * epsilon)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])
def test_a_recipe_is_what_its_comment_says(name: str) -> None:
    text = templates.recipe(name)
    comment = re.sub(r"\n# *", " ", text.split("format = ")[0])
    config = load_config(FOLDER / f"{name}.toml")
    federation, groups = config.federation, config.privacy.groups
    budgets = ", ".join(f"{group.epsilon:g}" for group in groups)
    for words in (
        f"ε = {budgets}. {federation.clients} clients, {config.training.rounds} rounds.",
        f"nestegg data get {federation.dataset} ",
        f"on {federation.validation:,} ",
        "that no client holds, with seed 100",
        "learning_rate:",
        "clip_norm:",
        "local_epochs",
        "batch_size",
    ):
        assert words in comment
    assert federation.tested_on == "test"
    assert [group.share for group in groups] == [0.34, 0.43, 0.23]
    assert not isinstance(config.privacy.influence, str)  # a curve that it needs is in it


@pytest.mark.parametrize("name", NAMES)
def test_init_copies_a_recipe_and_says_what_data_it_needs(name: str, run: Run, tmp_path: Path) -> None:
    done = run("init", tmp_path / "my recipes", "--recipe", name)
    assert (done.code, done.err) == (0, "")
    copy, dataset = tmp_path / "my recipes" / "config.toml", name.removesuffix("-strict")
    assert copy.read_bytes() == (FOLDER / f"{name}.toml").read_bytes()
    assert f"Written: {copy}. Its dataset, {dataset}, " in done.out
    assert f"nestegg plan '{copy}'" in done.out  # as a shell takes it
    assert ("comes with nestegg" if name == "digits" else f"nestegg data get {dataset}.") in done.out
    again = run("init", tmp_path / "my recipes", "--recipe", name)
    assert (again.code, again.out) == (2, "")
    assert "config.toml exists" in again.err


@pytest.mark.parametrize("name", ["", "mnsit", "mnist.toml", "../recipes/mnist", "/etc/passwd", "é\n", "*", "MNIST"])
def test_a_name_that_is_none_is_told_which_there_are(name: str, run: Run, tmp_path: Path) -> None:
    refused = run("init", tmp_path / "new", "--recipe", name)
    assert (refused.code, refused.out) == (2, "")
    assert f"--recipe = {name!r} must be one of {', '.join(NAMES)}." in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_recipe_is_not_given_with_anything_else(run: Run, tmp_path: Path) -> None:
    refused = run("init", tmp_path / "new", "--recipe", "mnist", "--dataset", "mnist")
    assert refused.code == 2
    assert "give one of --data, --dataset, --recipe, --own and --examples." in refused.err


@pytest.mark.parametrize("name", ["mnist", "cifar10-strict", "adult"])
def test_a_run_without_data_says_which_files_and_writes_nothing(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = name.removesuffix("-strict")
    monkeypatch.setenv("NESTEGG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there, *missing = needed(dataset)
    (tmp_path / "data" / there).parent.mkdir(parents=True)
    (tmp_path / "data" / there).touch()
    refused = run("run", FOLDER / f"{name}.toml", "--out", tmp_path / "out")
    assert (refused.code, refused.out) == (2, "")
    assert f"{tmp_path / 'data'} (which lacks {', '.join(missing)}), {tmp_path / 'cache' / 'nestegg'}." in refused.err
    assert f"Run `nestegg data get {dataset}`, or put into" in refused.err
    assert ("unpack it there" in refused.err) == (dataset == "cifar10")
    assert len(refused.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
