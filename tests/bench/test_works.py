"""The work that all simulators do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nestegg.bench.peers.work import Work
from nestegg.bench.works import load_federation, write_work
from tests.bench.conftest import TINY


def test_what_is_written_is_what_the_federation_does(tmp_path: Path) -> None:
    write_work(TINY, tmp_path, 3)
    work, world = Work.load(tmp_path), load_federation(tmp_path, workers=1)
    for t in (1, 2, 3):
        cohort = work.cohort(t)
        assert [client for client, _ in cohort] == world.cohort(t)
        for client, batches in cohort:
            own = np.arange(work.starts[client], work.starts[client + 1])
            assert np.array_equal(np.sort(np.concatenate(batches)), np.sort(np.tile(own, 2)))
            assert max(map(len, batches)) <= 4
    assert work.facts["noise_std"] == pytest.approx(world.plan.clip_norm * world.plan.round_noise_multiplier[0])
    assert work.facts["expected"] == pytest.approx(0.7 * 7)
