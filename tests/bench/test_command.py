"""`nestegg bench` as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from nestegg.cli.program import app
from nestegg.errors import InputError


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["walking"], "what to measure = 'walking'"),
        (["--works", "mlp,cook"], "work = 'cook'"),
        (["--peers", "friend"], "peers = 'friend'"),
        (["--rounds", "0"], "rounds = 0"),
        (["--works", ","], "',' names nothing"),
        (["--works", "tiny", "--peers", "none", "--out", "/dev/null/x"], "--out /dev/null/x cannot be made"),
        (["--precisions", "fp8"], "precisions = 'fp8'"),
    ],
)
def test_mistakes_are_named(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(result.exception, InputError)
    assert complaint in str(result.exception)


@pytest.mark.slow
def test_work_without_its_data_is_named_and_the_rest_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NESTEGG_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ["--peers", "none", "--rounds", "1", "--out", str(tmp_path / "out"), "--data", str(tmp_path)]
    alone = CliRunner().invoke(app, ["bench", "--works", "uneven", *options])
    assert isinstance(alone.exception, InputError)
    result = CliRunner().invoke(app, ["bench", "--works", "uneven,tiny", *options])
    assert result.exit_code == 0
    assert "uneven: " in result.output
    assert "tiny" in (tmp_path / "out" / "bench.csv").read_text()
