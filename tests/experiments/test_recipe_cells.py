"""A recipe is what its column in “What privacy costs” trains: the table's numbers are the recipe's."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nestegg.cli import templates
from nestegg.configuration.config import Config, load_config
from nestegg.configuration.participants import make_plan
from nestegg.experiments.cells import Store, plan_of
from nestegg.experiments.definition import load
from nestegg.experiments.outcomes import configs_of

ROOT = Path(__file__).parents[2]
NAMES = [name for name in templates.recipes() if name != "digits"]
AIMS = {"mnist": 96.5, "fashion-mnist": 83.5, "adult": 84.0, "cifar10": 56.0}
STRICT_AIMS = {"mnist": 93.0, "fashion-mnist": 76.0, "adult": 82.0, "cifar10": 45.0}


@cache
def cells() -> dict[tuple[str, str], list[Config]]:
    return configs_of(load("what-privacy-costs"), "cpu")


def of_recipe(name: str, column: str = "recipe") -> list[Config]:
    return cells()[name.replace("fashion-mnist", "fmnist"), column]


def finals(name: str, column: str = "recipe") -> list[float]:
    store = Store(ROOT / "results")
    found = [store.get(config) for config in of_recipe(name, column)]
    return [cell.final for cell in found if cell is not None]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_trains_what_the_table_has(name: str) -> None:
    recipe, cell = load_config(ROOT / "examples" / "recipes" / f"{name}.toml"), of_recipe(name)[0]
    assert make_plan(recipe).digest == plan_of(cell).digest
    assert recipe.model == cell.model
    assert recipe.federation == cell.federation
    assert recipe.training == cell.training.model_copy(update={"workers": recipe.training.workers})
    for key in ("clip_norm", "clipping", "clip_unit", "colluders", "side"):
        assert getattr(recipe.privacy, key) == getattr(cell.privacy, key)


@pytest.mark.parametrize("name", NAMES)
def test_recipes_reach_their_aims(name: str) -> None:
    found, task = finals(name), name.removesuffix("-strict")
    assert len(found) == 10
    assert np.mean(found) >= (STRICT_AIMS if name.endswith("-strict") else AIMS)[task]


@pytest.mark.parametrize("page", ["README.md", "docs/recipes.md"])
def test_pages_have_the_numbers_of_the_cells(page: str) -> None:
    text = (ROOT / page).read_text()
    titles = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "adult": "Adult"}
    for name, title in titles.items():
        (line,) = re.findall(rf"^\| {title} \|.*$", text, re.MULTILINE)
        stated = [float(one.strip("* ")) for one in line.strip("|").split("|")[1:]]
        columns = [(name, "recipe"), (name, "fedavg"), (f"{name}-strict", "recipe")]
        assert stated[2:] == [round(float(np.mean(finals(*one))), 1) for one in columns]
