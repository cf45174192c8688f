"""A module of schedules that somebody else wrote, where Python finds it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planning.schedules import MORE, PYTHON


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a module of somebody else, as long as these tests run."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "my_schedules.py").write_text(PYTHON[0] + MORE)
    (folder / "broken.py").write_text("raise OSError('no disk')")
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("my_schedules", None)
