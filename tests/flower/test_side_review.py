"""What a hostile reading of side statistics on Flower found: each test fails until its finding is fixed."""

from __future__ import annotations

import pytest

import nestegg
from nestegg.training import SideStatistics

pytest.importorskip("flwr")

from nestegg.flower.terms import Sharing, Terms


@pytest.mark.parametrize(
    "side", [SideStatistics(clip_share=0.01, step=1), SideStatistics(curve_share=0.1, largest_loss=5)]
)
def test_terms_have_one_digest_however_numbers_are_written(side: SideStatistics) -> None:
    plan = nestegg.plan([nestegg.Group("all", 6, nestegg.Budget(50.0))], rounds=2)
    terms = Sharing(side=side).terms("run", plan)
    assert Terms.parse(terms.text).digest == terms.digest
