"""Convolutions by the compiled kernel: those of 3 × 3 and 5 × 5 pixels that keep an image's size.

Winograd's algorithm takes a quarter to a sixth of the multiplications. Results differ from torch's in the last bits,
and are the same in every instruction set but `baseline`.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from nestegg.training.images import CHANNELS, Compiled, by_torch, call, fits
from nestegg.training.kernel import Kernel

_POINTS = {3: 6, 5: 8}  # at which polynomials are taken, by the side of a convolution: `winograd.h`


_TILE, _LEAST_PIXELS, _INPUTS_A_TILE = 4, 16, 8  # below which torch is faster: images, and tiles for a kernel's size


def is_compiled(part: nn.Module) -> bool:
    """Whether the kernel has such a convolution."""
    if type(part) is not nn.Conv2d or part._parameters.get("weight") is None or "forward" in vars(part):
        return False
    side = part.kernel_size[0]
    plain = (part.stride, part.dilation, part.groups, part.padding_mode) == ((1, 1), (1, 1), 1, "zeros")
    keeps_size = part.padding in ("same", (side // 2, side // 2)) and part.kernel_size == (side, side)
    return plain and keeps_size and side in _POINTS and part.in_channels % CHANNELS == part.out_channels % CHANNELS == 0


class CompiledConvolution(Compiled, nn.Conv2d):
    """A convolution by the kernel, where images and parameters are as it takes them, and it is the faster."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the images, convolved."""
        if not self._takes(x):
            return super().forward(x)
        y: Tensor = _Convolution.apply(x, self.weight, self.bias, self._kernel)  # type: ignore[no-untyped-call]
        return y

    def _takes(self, x: Tensor) -> bool:
        """Whether all is as the kernel takes it: parameters may have been exchanged for others since."""
        weight, bias = self.weight, self.bias
        if not fits(x, weight, bias) or weight.dim() != 4:
            return False
        outputs, inputs, *sides = weight.shape
        samples, channels, height, width = x.shape
        tiles = samples * ceil(height / _TILE) * ceil(width / _TILE)
        return (
            channels == inputs
            and outputs % CHANNELS == 0
            and tuple(sides) == self.kernel_size
            and (bias is None or bias.shape == (outputs,))
            and height * width >= _LEAST_PIXELS
            and tiles * _INPUTS_A_TILE >= inputs
        )


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernel: Kernel) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.kernel = kernel
        return _convolved(kernel, x, weight.contiguous(), bias, turned=False)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *by_torch(partial(conv2d, padding=weight.shape[-1] // 2), (x, weight, bias), dy), None
        weight, dy = weight.contiguous(), dy.contiguous(memory_format=torch.channels_last)
        dweight, dbias = torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
        _run(ctx.kernel, "nestegg_convolve_back", weight, x, dy, *_sizes(x), len(weight), dweight, dbias)
        dx = _convolved(ctx.kernel, dy, weight, None, turned=True) if ctx.needs_input_grad[0] else None
        return dx, dweight, dbias, None


def _convolved(kernel: Kernel, x: Tensor, weight: Tensor, bias: Tensor | None, *, turned: bool) -> Tensor:
    """Images convolved; turned: derivatives by what was convolved, from those by what came out."""
    outputs = weight.shape[1 if turned else 0]
    y = torch.empty((len(x), outputs, *x.shape[2:]), dtype=x.dtype, memory_format=torch.channels_last)
    bias = None if bias is None else bias.contiguous()
    _run(kernel, "nestegg_convolve", weight, x, weight, bias, *_sizes(x), outputs, int(turned), y)
    return y


def _run(kernel: Kernel, name: str, weight: Tensor, *arguments: Tensor | int | None) -> None:
    if call(kernel, f"{name}_{_POINTS[weight.shape[-1]]}", *arguments):
        raise MemoryError("not enough memory for a convolution")


def _sizes(images: Tensor) -> tuple[int, int, int, int]:
    """Samples, height, width, channels."""
    return images.shape[0], images.shape[2], images.shape[3], images.shape[1]
