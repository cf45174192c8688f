"""Would clients of one size train faster together? Their convolutions in one grouped call, beside one call for each.

python -m bench.grouped

The convolutions of ResNet-20, forwards and backwards, on one core, channels last: the least processor time of several
turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from nestegg.bench.machine import machine

_LAYERS = ((16, 32), (32, 16), (64, 8))  # channels, and the side of the images
_BATCH, _CLIENTS, _TURNS = 32, (2, 4), 9


def least_seconds(work: Callable[[], object]) -> float:
    """Return the least processor time that the work took."""
    taken = []
    for _ in range(_TURNS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def both_ways(images: Tensor, weights: Tensor, groups: int = 1) -> Tensor:
    """Convolve forwards and backwards; return what came of it."""
    images.grad = weights.grad = None
    found = conv2d(images, weights, padding=1, groups=groups)
    found.backward(torch.ones_like(found))
    return found.detach()


def leaf(one: Tensor) -> Tensor:
    """Return a tensor with the channels of a pixel side by side, and a gradient of its own."""
    return one.detach().to(memory_format=torch.channels_last).requires_grad_()


def compared(channels: int, side: int, clients: int) -> str:
    """Return what one layer takes either way, and whether it has the same bits."""
    images = [leaf(torch.randn(_BATCH, channels, side, side)) for _ in range(clients)]
    weights = [leaf(torch.randn(channels, channels, 3, 3)) for _ in range(clients)]
    together = leaf(torch.cat(images, dim=1)), leaf(torch.cat(weights))

    def one_by_one() -> Tensor:
        return torch.cat([both_ways(*one) for one in zip(images, weights, strict=True)], dim=1)

    def grouped() -> Tensor:
        return both_ways(*together, clients)

    same = "the same bits" if torch.equal(one_by_one(), grouped()) else "other bits"
    return f"{least_seconds(grouped) / least_seconds(one_by_one):.2f} times as long in one call, {same}"


def main() -> None:
    """Measure, and print a line for each layer and number of clients."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(machine())
    for (channels, side), clients in product(_LAYERS, _CLIENTS):
        print(f"{clients} clients, {channels} channels of {side} x {side}: {compared(channels, side, clients)}")


if __name__ == "__main__":
    main()
