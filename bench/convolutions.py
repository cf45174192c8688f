"""The kernel's convolutions beside torch's: time and rounding, forwards and backwards.

python -m bench.convolutions

On one core, channels last, in every instruction set that the processor has, by the least processor time of several
turns; torch is at its widest, unless ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA say otherwise. Errors are those of
outputs, and of derivatives by inputs and weights, relative to double precision.
"""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor, nn

from bench.grouped import least_seconds
from nestegg.bench.machine import machine
from nestegg.training.convolutions import CompiledConvolution
from nestegg.training.kernel import kernels

_LAYERS = {  # samples, inputs, outputs, pixels a side, and those of the convolution
    "the CNN's second": (125, 32, 64, 14, 5),
    "the same, batches of 8": (8, 32, 64, 14, 5),
    "ResNet-20, first third": (50, 16, 16, 32, 3),
    "ResNet-20, second third": (50, 32, 32, 16, 3),
    "ResNet-20, last third": (50, 64, 64, 8, 3),
}


def both_ways(part: nn.Conv2d, images: Tensor, slopes: Tensor) -> list[Tensor]:
    """Convolve forwards and backwards; return outputs, and derivatives by inputs and weights."""
    images = images.detach().requires_grad_()
    found = part(images)
    return [found.detach(), *torch.autograd.grad(found, [images, part.weight], slopes)]


def errors(found: list[Tensor], truth: list[Tensor]) -> str:
    """Return how far off results are."""
    return ", ".join(f"{float((a - b).norm() / b.norm()):.0e}" for a, b in zip(found, truth, strict=True))


def compared(samples: int, inputs: int, outputs: int, side: int, size: int) -> list[str]:
    """Return a line for torch, and one for each of the kernel's instruction sets."""
    images, slopes = (
        torch.randn(samples, channels, side, side).to(memory_format=torch.channels_last)
        for channels in (inputs, outputs)
    )
    part = nn.Conv2d(inputs, outputs, size, padding=size // 2)
    truth = both_ways(copy.deepcopy(part).double(), images.double(), slopes.double())
    parts = {
        "torch": part,
        **{one.instruction_set: CompiledConvolution.of(copy.deepcopy(part), one) for one in kernels()},
    }
    seconds = {name: least_seconds(partial(both_ways, one, images, slopes)) for name, one in parts.items()}
    return [
        f"  {name:9} {1000.0 * took:7.2f} ms, {seconds['torch'] / took:4.2f} times as fast; "
        f"errors {errors(both_ways(parts[name], images, slopes), truth)}"
        for name, took in seconds.items()
    ]


def main() -> None:
    """Measure, and print a few lines for each layer."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(machine())
    for name, sizes in _LAYERS.items():
        print(name, *compared(*sizes), sep="\n")


if __name__ == "__main__":
    main()
