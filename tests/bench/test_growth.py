"""How the cost of a round grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestegg.bench import growth


@pytest.mark.slow
def test_growth_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SERIES", {"clients": ("clients", {5: growth._digits_like(5, 2)})})
    monkeypatch.setattr(growth, "ROUNDS", (1, 3))
    points = list(growth.growth(tmp_path))
    assert [(point.varied, point.value) for point in points] == [("clients", 5), ("rounds", 1), ("rounds", 3)]
    assert points[1].seconds < points[2].seconds
    (tmp_path / "out").mkdir()
    growth.save_growth(tmp_path / "out", points)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"growth.csv", "growth.png", "growth.svg"}
