"""What is sent to workers on other machines: data in memory is shared and read, all else is each worker's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nestegg.training.blocks import Clipping, Task
from nestegg.training.seats import Worker
from nestegg.training.sending import Outfit, pack, unpack
from tests.cluster.driver import NAMES, made, samples


class Reusing:
    """A source that fills the same array for every client."""

    names, sizes = NAMES, None

    def __init__(self) -> None:
        self.scratch = np.zeros((64, 6), np.float32)

    def load(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = samples(name)
        self.scratch[: len(x)] = x.numpy()
        return torch.from_numpy(self.scratch[: len(x)].copy()), y

    def fingerprint(self) -> bytes:
        return b""


def sent(clients: Any) -> tuple[Outfit, list[Any]]:
    """An outfit, and what of it arrives, in memory that may only be read."""
    federation = made(clients, workers=1)
    parts = (federation.performance, federation.model, federation.clients, federation.local, federation.randomness)
    outfit = Outfit(*parts, federation.side)
    content, path, *arrays = pack(outfit)
    for array in arrays:
        array.flags.writeable = False
    return outfit, [content, path, *arrays]


def test_data_in_memory_is_shared_and_a_source_is_not() -> None:
    _, inside = sent({name: samples(name) for name in NAMES})
    assert len(inside) == 2 + 2 * len(NAMES)
    outfit, own = sent(Reusing())
    assert len(own) == 2
    x, y = unpack(own).clients.samples(0)
    assert all(torch.equal(*pair) for pair in zip((x, y), outfit.clients.samples(0), strict=True))


def test_a_worker_trains_as_the_process_that_sent_it_the_outfit() -> None:
    outfit, parcel = sent({name: samples(name) for name in NAMES})
    worker, model = Worker({}), torch.linspace(-1.0, 1.0, 53)
    assert worker.prepare(1, parcel) is None
    clipping = Clipping(np.full(1, 2.0), None, 2.0**-20)
    tasks: list[Task] = [([client], [], 1, 0.1, clipping) for client in (0, 3)]
    total, (_, broken) = worker.train(1, 1, model.numpy(), tasks)
    engine, _ = outfit.engine()
    expected = sum(clipping.sum(engine.train_block(model, [client], 1, 0.1).clone()).total for client in (0, 3))
    assert broken == 0
    assert np.array_equal(total, np.asarray(expected))
    assert np.array_equal(worker.add(total, total, total), 3.0 * total)
    worker.forget(1)
    bad = replace(outfit, performance=replace(outfit.performance, device="cuda"))
    assert "device = 'cuda' cannot be used here" in str(worker.prepare(2, pack(bad)))
