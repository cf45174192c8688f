"""A cell that was really trained."""

from __future__ import annotations

import pytest

from nestegg.experiments.cells import Cell, measure
from tests.experiments.made import config_of


@pytest.fixture(scope="session")
def cell() -> Cell:
    return measure(config_of("table-accuracy"))
