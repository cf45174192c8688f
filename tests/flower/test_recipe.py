"""A recipe on Flower has the simulator's model: features, loss, schedule, clipping, noise and side statistics."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bench.recipe_on_flower import Outcome, Where, compare
from safetensors.torch import load_file

from nestegg import InputError, Ledger

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "recipes" / "digits.toml"
SMALL = {"clients = 50": "clients = 6", "local_epochs = 5": "local_epochs = 1"}


def written(folder: Path, *, further: str = "", **changes: str) -> Where:
    """The recipe for digits with fewer clients and shorter rounds, otherwise as it is."""
    text = DIGITS.read_text()
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new)
    for key, value in changes.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    file = folder / "recipe.toml"
    file.write_text(text + further)
    return Where(str(file))


def check_same(found: Outcome) -> None:
    """The models agree but for rounding, and have learnt something to agree on."""
    assert float(found.flower.weights.abs().max()) > 0.01
    assert found.flower.beside(found.loop) < 1e-5
    assert found.flower.beside(found.usual) < 1e-4  # another order of sums
    assert found.flower.accuracy == pytest.approx(found.loop.accuracy, abs=0.5)


def test_the_recipe_has_the_simulators_model_and_every_node_pays(tmp_path: Path) -> None:
    where = written(tmp_path)
    check_same(compare(where, tmp_path, rounds=2))
    for number in range(6):
        with Ledger(tmp_path / "accounts" / str(number) / "ledger.db", read_only=True) as ledger:
            ledger.verify()
            assert ledger.account("own").epsilon > 0.0


@pytest.mark.parametrize("name", ["tanh-cnn-standardised", "tanh-cnn-head"])
def test_so_have_small_networks_of_which_only_what_is_trained_is_sent(name: str, tmp_path: Path) -> None:
    where = written(tmp_path)
    text = Path(where.file).read_text().replace('name = "softmax"', f'name = "{name}"')
    Path(where.file).write_text(re.sub(r"^features = .*$", "", text, flags=re.MULTILINE))
    found = compare(where, tmp_path, rounds=2)
    assert float(found.flower.weights.abs().max()) > 0.01
    # The loop has channels last, for speed: 8e-6 after a round, of which the next makes more on some processors.
    assert found.flower.beside(found.loop) < 1e-3
    sent = load_file(tmp_path / "run" / "checkpoint.safetensors")["model"]
    assert torch.equal(sent, found.flower.weights)  # nothing that is fixed has a place in it


def test_so_has_one_with_a_learnt_norm_a_curve_and_another_unit_and_loss(tmp_path: Path) -> None:
    side = "\n[privacy.side]\nclip_share = 0.1\ncurve_share = 0.2\nheld_back = 0.2\n"
    where = written(
        tmp_path,
        further=side,
        reproducible='true\nloss = "balanced"',
        clip_norm='2.0\nclip_unit = "update"\nclipping = "flat"\ncolluders = 1',
    )
    check_same(compare(where, tmp_path, rounds=2))


def test_secret_noise_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training\.reproducible = false must be true"):
        compare(written(tmp_path, reproducible="false"), tmp_path)


@pytest.mark.slow
@pytest.mark.soak
def test_the_whole_recipe_has_the_simulators_model_on_flowers_simulation_engine(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.recipe_on_flower", str(DIGITS), "--engine", "ray"]
    environment = os.environ | {"FLWR_HOME": str(tmp_path / "flwr"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "digits, ray, 25 rounds" in done.stdout
    differences = [float(one) for one in re.findall(r"largest difference (\S+),", done.stdout)]
    assert len(differences) == 2
    assert max(differences) < 1e-4
