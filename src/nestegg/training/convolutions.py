"""Convolutions by the compiled kernel: those of 3 × 3 and 5 × 5 pixels that keep an image's size.

Winograd's algorithm takes a quarter to a sixth of the multiplications. Results differ from torch's in the last bits,
and are the same in every instruction set but `baseline`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nestegg.training.images import CHANNELS, call, fits
from nestegg.training.kernel import Kernel

_POINTS = {3: 6, 5: 8}  # at which polynomials are taken, by the side of a convolution: `winograd.h`


def is_compiled(part: nn.Module) -> bool:
    """Whether the kernel has such a convolution."""
    if type(part) is not nn.Conv2d:
        return False
    side = part.kernel_size[0]
    plain = (part.stride, part.dilation, part.groups, part.padding_mode) == ((1, 1), (1, 1), 1, "zeros")
    keeps_size = part.padding in ("same", (side // 2, side // 2)) and part.kernel_size == (side, side)
    return plain and keeps_size and side in _POINTS and part.in_channels % CHANNELS == part.out_channels % CHANNELS == 0


class CompiledConvolution(nn.Conv2d):
    """A convolution of the same parameters, by the kernel where the images are as it takes them."""

    def __init__(self, part: nn.Conv2d, kernel: Kernel) -> None:
        side = part.kernel_size[0]
        super().__init__(part.in_channels, part.out_channels, side, padding=side // 2, device="meta")
        self.weight, self.bias, self._kernel = part.weight, part.bias, kernel

    def forward(self, x: Tensor) -> Tensor:
        """Return the images, convolved."""
        if not fits(x):
            return super().forward(x)
        y: Tensor = _Convolution.apply(x, self.weight, self.bias, self._kernel)  # type: ignore[no-untyped-call]
        return y


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernel: Kernel) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kernel, ctx.has_bias = kernel, bias is not None
        return _convolved(kernel, x, weight.contiguous(), bias, turned=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        weight, dy = weight.contiguous(), dy.contiguous(memory_format=torch.channels_last)
        dweight, dbias = torch.empty_like(weight), weight.new_empty(len(weight)) if ctx.has_bias else None
        _run(ctx.kernel, "nestegg_convolve_back", weight, x, dy, *_sizes(x), len(weight), dweight, dbias)
        dx = _convolved(ctx.kernel, dy, weight, None, turned=True) if ctx.needs_input_grad[0] else None
        return dx, dweight, dbias, None


def _convolved(kernel: Kernel, x: Tensor, weight: Tensor, bias: Tensor | None, *, turned: bool) -> Tensor:
    """Images convolved; turned: derivatives by what was convolved, from those by what came out."""
    outputs = weight.shape[1 if turned else 0]
    y = torch.empty((len(x), outputs, *x.shape[2:]), memory_format=torch.channels_last)
    bias = None if bias is None else bias.contiguous()
    _run(kernel, "nestegg_convolve", weight, x, weight, bias, *_sizes(x), outputs, int(turned), y)
    return y


def _run(kernel: Kernel, name: str, weight: Tensor, *arguments: Tensor | int | None) -> None:
    if call(kernel, f"{name}_{_POINTS[weight.shape[-1]]}", *arguments):
        raise MemoryError("not enough memory for a convolution")


def _sizes(images: Tensor) -> tuple[int, int, int, int]:
    """Samples, height, width, channels."""
    return images.shape[0], images.shape[2], images.shape[3], images.shape[1]
