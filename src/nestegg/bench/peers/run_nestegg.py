"""Ours. Arguments: the work's folder, workers (0 for as many as pay off), precision, engine."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from work import serve

import nestegg
from nestegg.bench.works import load_federation
from nestegg.training.blocks import Clipping


def main(folder: Path, workers: int, precision: str, engine: str) -> None:
    """Serve rounds."""
    world = load_federation(folder, workers or None, precision, engine)
    begin, plan = world.start(), world.plan

    def run(round_: int, noisy: bool) -> NDArray[np.float32]:
        if noisy:
            return world.round(replace(begin, round=round_ - 1))[0].model.numpy()
        clipping = Clipping(np.full(plan.clients, plan.clip_norm), None, 0.0)
        total, rate = torch.zeros_like(begin.model, dtype=torch.float64), world.local.learning_rate
        for part in world.workers.sums(begin.model, world.cohort(round_), round_, rate, clipping):
            total += part.total
        return (begin.model + total / (plan.mean_sampling_rate[round_ - 1] * plan.clients)).float().numpy()

    serve(run, version=nestegg.__version__, engine=world.engine.name, workers=world.workers.count)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
