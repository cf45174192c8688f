"""One release's loss distribution: every bit of it is what Google's own loop gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from nestegg.accounting import PldAccountant
from nestegg.accounting.release_loss import release_loss


def parts(losses: Any) -> list[tuple[Any, ...]]:
    """What a distribution holds, for whoever is removed and whoever is added."""
    dense = [pmf.to_dense_pmf() for pmf in (losses._pmf_remove, losses._pmf_add)]
    return [(one._discretization, one._lower_loss, one._infinity_mass, one._probs.tolist()) for one in dense]


def check(q: float, sigma: float) -> None:
    interval = PldAccountant.for_releases(q, sigma).interval
    theirs = pld.from_gaussian_mechanism(sigma, sampling_prob=q, value_discretization_interval=interval)
    ours = release_loss(q, sigma, interval)
    assert ours._symmetric == theirs._symmetric
    assert parts(ours) == parts(theirs)


@pytest.mark.parametrize("q", [1e-12, 1e-4, 0.25, 0.5, 0.9, 1.0 - 1e-12, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 2.4255, 1e3])
def test_every_bit_is_googles(q: float, sigma: float) -> None:
    check(q, sigma)


@settings(deadline=None, max_examples=20)
@given(st.floats(1e-6, 1.0), st.floats(-1.0, 3.0))
def test_every_bit_is_googles_anywhere(q: float, log_sigma: float) -> None:
    check(q, float(np.exp(log_sigma)))


@pytest.mark.parametrize("cells", [3, 10])
def test_a_cell_at_the_pole_of_the_loss(cells: int) -> None:
    """Of a sampled release, log(1 − q) is the least loss to whoever is removed; a cell may lie on it."""
    q = 0.3
    interval = -np.log1p(-q) / cells
    theirs = pld.from_gaussian_mechanism(0.5, sampling_prob=q, value_discretization_interval=interval)
    assert parts(release_loss(q, 0.5, interval)) == parts(theirs)
