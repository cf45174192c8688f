"""The loop that everybody writes first: plain PyTorch, client after client. Arguments: the work's folder, threads."""

from __future__ import annotations

import copy
import sys

import numpy as np
import torch
from numpy.typing import NDArray
from work import Work, serve


def main(folder: str, threads: int) -> None:
    """Serve rounds."""
    work, facts = Work.load(folder), Work.load(folder).facts
    torch.set_num_threads(threads)
    x, y, start = (torch.from_numpy(array) for array in (work.x, work.y, work.start))
    network = work.network()
    cohorts = {t: work.cohort(t) for t in range(1, facts["rounds"] + 1)}

    def client(batches: list[NDArray[np.int64]]) -> torch.Tensor:
        model = copy.deepcopy(network)
        optimiser = torch.optim.SGD(model.parameters(), lr=facts["learning_rate"], momentum=facts["momentum"])
        for batch in batches:
            optimiser.zero_grad()
            work.loss(model(x[batch]), y[batch]).backward()
            optimiser.step()
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach() - start

    def run(round_: int, noisy: bool) -> NDArray[np.float32]:
        total = torch.zeros_like(start)
        for _, batches in cohorts[round_]:
            update = client(batches)
            total += update * (facts["clip_norm"] / update.norm()).clamp(max=1.0)
        if noisy:
            total += torch.randn_like(total) * facts["noise_std"]
        return (start + total / facts["expected"]).numpy()

    serve(run, version=torch.__version__)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
