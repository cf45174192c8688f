"""A piece of work for tests, known by the name `tiny`."""

from __future__ import annotations

import pytest

from nestegg.bench.works import RECIPES, Recipe, random_clients
from nestegg.training import LocalTraining

TINY = Recipe(
    "seven small clients",
    "mlp",
    LocalTraining(2, 4, 0.1, schedule="constant"),
    0.7,
    lambda _: random_clients(7, 3, 9, (6,), 3),
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "tiny", TINY)
