"""Parts of convolutional networks by the compiled kernel: convolutions, normalisation and pooling.

Normalisation and pooling have the rectifier behind them in the same part. Torch runs through memory once for each of
them, and again for each derivative; the kernel does it in as few passes as will do. Pooling gives torch's own bits.
Normalisation differs from torch's in the last ones, and is the same in every instruction set but `baseline`.
"""

from __future__ import annotations

import copy
import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm

from nestegg.models.networks import RectifiedNorm
from nestegg.training.convolutions import CompiledConvolution, is_compiled
from nestegg.training.dense import is_hooked
from nestegg.training.images import Compiled, by_torch, call, fits
from nestegg.training.kernel import Kernel


def compiled_layers(model: nn.Module, kernel: Kernel) -> bool:
    """Put the kernel's parts in the place of torch's wherever a model has them; return whether it has any.

    Names of parameters stay. What has hooks is left alone.
    """
    found = False
    for part in [*model.modules()]:
        if type(part) is nn.Sequential:
            found |= _in_sequence(part, kernel)
        elif type(part) is RectifiedNorm and not is_hooked(part):
            CompiledNorm.of(part, kernel)
            found = True
        elif isinstance(part, nn.Conv2d) and is_compiled(part) and not is_hooked(part):
            CompiledConvolution.of(part, kernel)
            found = True
    return found


def _in_sequence(parts: nn.Sequential, kernel: Kernel) -> bool:
    found = False
    for i in range(len(parts) - 1):
        first, second = parts[i], parts[i + 1]
        if type(second) is not nn.ReLU or is_hooked(first) or is_hooked(second):
            continue
        if type(first) is nn.GroupNorm and first.affine:
            parts[i], parts[i + 1], found = CompiledNorm.of(copy.copy(first), kernel), nn.Identity(), True
        elif type(first) is nn.MaxPool2d and _halves(first):
            parts[i], parts[i + 1], found = CompiledPool(kernel), nn.Identity(), True
    return found


def _halves(pool: nn.MaxPool2d) -> bool:
    """Whether pooling takes 2 × 2 pixels that do not overlap."""
    sizes = [size if isinstance(size, tuple) else (size, size) for size in (pool.kernel_size, pool.stride)]
    plain = (pool.padding, pool.dilation, pool.ceil_mode, pool.return_indices) == (0, 1, False, False)
    return plain and sizes == [(2, 2), (2, 2)]


class CompiledNorm(Compiled, RectifiedNorm):
    """A norm by the kernel, where images and parameters are as it takes them."""

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """Return the images, normed, with a shortcut added if there is one, and rectified."""
        known = fits(x, self.weight, self.bias) and self.weight.shape == self.bias.shape == x.shape[1:2]
        if not known or not (beside is None or (fits(beside) and beside.shape == x.shape)):
            return super().forward(x, beside)
        settings = (self._kernel, self.num_groups, self.eps)
        y: Tensor = _Norm.apply(x, beside, self.weight, self.bias, settings)  # type: ignore[no-untyped-call]
        return y


class CompiledPool(nn.Module):
    """The largest of every 2 × 2 pixels, rectified; by the kernel where the images are as it takes them."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        """Return images of half the height and width."""
        if not fits(x) or min(x.shape[2:]) < 2:
            return torch.relu(nn.functional.max_pool2d(x, 2))
        y: Tensor = _Pool.apply(x, self._kernel)  # type: ignore[no-untyped-call]
        return y


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, beside: Tensor | None, weight: Tensor, bias: Tensor, settings: tuple[Kernel, int, float]
    ) -> Tensor:
        ctx.kernel, ctx.groups, ctx.least = settings
        y, moments = torch.empty_like(x), x.new_empty(len(x), ctx.groups, 2)
        images = (x, beside, weight.contiguous(), bias.contiguous())
        call(ctx.kernel, "nestegg_norm", *images, *_sizes(x), ctx.groups, ctypes.c_double(ctx.least), y, moments)
        ctx.save_for_backward(x, y, weight, moments, bias, beside)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, moments, bias, beside = ctx.saved_tensors
        if torch.is_grad_enabled():

            def normed(x: Tensor, beside: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
                plain = group_norm(x, ctx.groups, weight, bias, ctx.least)
                return torch.relu(plain if beside is None else plain + beside)

            return *by_torch(normed, (x, beside, weight, bias), dy), None
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        dbeside = None if beside is None else torch.empty_like(x)
        dy = dy.contiguous(memory_format=torch.channels_last)
        known = (x, y, dy, weight.contiguous(), moments)
        call(ctx.kernel, "nestegg_norm_back", *known, *_sizes(x), ctx.groups, dx, dbeside, dweight, dbias)
        return dx, dbeside, dweight, dbias, None


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        samples, channels, height, width = ctx.shape = x.shape
        ctx.kernel, half = kernel, (samples, channels, height // 2, width // 2)
        y = torch.empty(half, dtype=x.dtype, memory_format=torch.channels_last)
        place = torch.empty(half, dtype=torch.int8, memory_format=torch.channels_last)
        call(kernel, "nestegg_pool", x, samples, height, width, channels, y, place)
        ctx.save_for_backward(place)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        (place,), (samples, channels, height, width) = ctx.saved_tensors, ctx.shape
        if torch.is_grad_enabled():
            corners = torch.stack([torch.where(place == k, dy, 0.0) for k in range(4)], dim=-1)
            pairs = corners.unflatten(-1, (2, 2)).permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(2, 3)
            return nn.functional.pad(pairs, (0, width % 2, 0, height % 2)), None
        dx = torch.empty(ctx.shape, dtype=dy.dtype, memory_format=torch.channels_last)
        dy = dy.contiguous(memory_format=torch.channels_last)
        call(ctx.kernel, "nestegg_pool_back", dy, place, samples, height, width, channels, dx)
        return dx, None


def _sizes(images: Tensor) -> tuple[int, int, int]:
    """Samples, pixels, channels."""
    return images.shape[0], images.shape[2] * images.shape[3], images.shape[1]
