"""What it costs to plan by another curve than the true one, as bench.transfer has it."""

from __future__ import annotations

import numpy as np
import pytest
from bench.transfer import MEMORIES, OTHER, SETTINGS, config_of, costs

import nestegg
from nestegg.planning.curves import pace_of
from nestegg.planning.influence import forgetting

ROUNDS = 12
PACE = pace_of(None, ROUNDS)
GROUPS = [nestegg.Group("a", 3, nestegg.Budget(5.0)), nestegg.Group("b", 7, nestegg.Budget(20.0))]


def curve(kept: list[float]) -> nestegg.Influence:
    return nestegg.Influence(tuple(kept), tuple(kept), tuple(kept), (1, ROUNDS), 0.0, 1.0, 2)


def test_costs_are_those_of_the_law() -> None:
    """By weights v_t in the place of w_t: Σ w_t² c_t / v_t · Σ v_t c_t, beside (Σ w_t c_t)²; evenly, v_t = 1 / c_t."""
    true, other, c = (np.array(one) for one in (forgetting(1.5, PACE.learning_rate), [0.5] * ROUNDS, PACE.clip_scale))
    found = costs(curve(true.tolist()), {"other": curve(other.tolist())}, PACE, GROUPS)
    by = {"other": other, "uniform": 1.0 / c}
    by |= {f"κ = {memory:g}": forgetting(memory, PACE.learning_rate) for memory in MEMORIES}
    assert [*found] == ["other", *(f"κ = {memory:g}" for memory in MEMORIES), "uniform"]
    for name, v in by.items():
        right = (true**2 * c / v).sum() * (v * c).sum() / (true * c).sum() ** 2
        assert found[name] == pytest.approx(right, rel=1e-6), name
    assert min(found.values()) > 1.0
    assert found["other"] == pytest.approx(found["κ = 0"])  # a curve that is constant forgets nothing, either


def test_its_settings_are_those_of_the_results() -> None:
    for setting in SETTINGS:
        config = config_of(setting, seed=3)
        assert config.federation.dataset in OTHER
        assert (config.training.seed, config.training.learning_rate, config.privacy.method) == (3, 0.1, "idp-fedavg")
