"""The identity of a configuration: names of cells that no new key can change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nestegg import InputError
from nestegg.configuration import identity
from nestegg.configuration.config import Config, Training, changed, load_config
from nestegg.configuration.identity import config_digest
from nestegg.experiments.cells import hash_of

CELLS = Path(__file__).parents[2] / "results" / "cells"


@pytest.mark.no_cover
def test_all_committed_cells_keep_their_names() -> None:
    cells = [json.loads(path.read_text()) for path in CELLS.glob("*.json")]
    assert len(cells) > 400
    for cell in cells:
        assert hash_of(Config.model_validate(cell["config"])) == cell["hash"]


class LaterTraining(Training):
    """As it will be once there is one more key."""

    warmup: int = 0


def test_a_key_that_is_added_counts_only_where_it_differs_from_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(CELLS.parent.parent / "examples" / "digits.toml")
    monkeypatch.setitem(identity.FIRST_KEYS, "LaterTraining", identity.FIRST_KEYS["Training"])
    monkeypatch.setitem(identity.IRRELEVANT, "LaterTraining", identity.IRRELEVANT["Training"])
    later = [
        config.model_copy(update={"training": LaterTraining(**config.training.model_dump(), warmup=warmup)})
        for warmup in (0, 3)
    ]
    assert config_digest(later[0]) == config_digest(config) != config_digest(later[1])


def test_keys_of_today_count_also_at_their_defaults_and_some_never() -> None:
    config = load_config(CELLS.parent.parent / "examples" / "digits.toml")
    assert config_digest(changed(config, "training", momentum=0.8)) != config_digest(config)
    for section, values in (("training", {"workers": 7}), ("federation", {"data": "/x"}), ("ledger", {"run": "a"})):
        assert config_digest(changed(config, section, **values)) == config_digest(config)


def test_a_format_of_the_future_is_refused(tmp_path: Path) -> None:
    text = (CELLS.parent.parent / "examples" / "digits.toml").read_text()
    (tmp_path / "c.toml").write_text("format = 99\n" + text)
    with pytest.raises(InputError, match="format = 99 must be a whole number from 1 to"):
        load_config(tmp_path / "c.toml")
    (tmp_path / "c.toml").write_text("format = 1\n" + text)
    assert config_digest(load_config(tmp_path / "c.toml")) == config_digest(
        load_config(CELLS.parent.parent / "examples" / "digits.toml")
    )
