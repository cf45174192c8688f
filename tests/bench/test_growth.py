"""How the cost of a round grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from nestegg.bench import growth
from nestegg.bench.growth_charts import power, save_growth, series


@pytest.mark.slow
def test_growth_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SERIES", {"clients": ("clients", {5: growth._digits_like(5, 2)})})
    monkeypatch.setattr(growth, "ROUNDS", (1, 3))
    monkeypatch.setattr(growth, "ENROLLED", (150,))
    monkeypatch.setattr(growth, "GROUPS", (2,))
    points = list(growth.growth(tmp_path))
    varied = [("clients", 5), ("rounds", 1), ("rounds", 3), ("enrolled", 150), ("groups", 2)]
    assert [(point.varied, point.value) for point in points] == varied
    assert all(point.seconds > 0.0 and point.megabytes > 10.0 for point in points)
    assert points[1].seconds < points[2].seconds
    (tmp_path / "out").mkdir()
    save_growth(tmp_path / "out", points)
    charts = {f"growth-{name}.{end}" for name in ("clients", "rounds", "enrolled", "groups") for end in ("png", "svg")}
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"growth.csv", *charts}


def test_powers_tell_linear_growth_from_other_growth() -> None:
    points = [growth.Point("groups", n, 0.1 + 2.0 * n**2, 50.0) for n in (1, 100, 1000)]
    assert power(points, "seconds") == pytest.approx(2.0, abs=1e-3)
    assert power(points, "megabytes") == 0.0
    assert list(series([*points, growth.Point("rounds", 1, 1.0, 1.0)])) == ["groups", "rounds"]
