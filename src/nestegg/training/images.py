"""Images as the compiled kernel takes them, and how it is called with them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from nestegg.training.kernel import Kernel, address

CHANNELS = 16  # the kernel takes multiples of it, in any instruction set


class Compiled(nn.Module):
    """A layer by the kernel, where images and parameters are as it takes them."""

    _kernel: Kernel

    @classmethod
    def of(cls, part: nn.Module, kernel: Kernel) -> Self:
        """Make this of torch's layer, in its place: whoever holds it holds this."""
        part.__class__ = cls
        assert isinstance(part, cls)
        part._kernel = kernel
        return part


def fits(images: Tensor, *parameters: Tensor | None) -> bool:
    """Whether the kernel takes these: of single precision on a CPU, channels side by side and a multiple of sixteen."""
    return (
        not torch._C._are_functorch_transforms_active()  # whose tensors are none
        and all(_is_plain(one) for one in (images, *parameters) if one is not None)
        and images.dim() == 4
        and images.shape[1] % CHANNELS == 0
        and images.numel() > 0
        and images.is_contiguous(memory_format=torch.channels_last)
    )


def _is_plain(one: Tensor) -> bool:
    return one.dtype == torch.float32 and one.device.type == "cpu"


def by_torch(function: Callable[..., Tensor], inputs: Sequence[Tensor | None], dy: Tensor) -> list[Tensor | None]:
    """Return derivatives of torch's own function by its inputs, so that derivatives of these can be taken.

    The kernel has none of those. A model that differentiates in its own forward asks for them.
    """
    wanted = [one for one in inputs if one is not None and one.requires_grad]
    with torch.enable_grad():
        found = iter(torch.autograd.grad(function(*inputs), wanted, dy, create_graph=True))
    return [next(found) if one is not None and one.requires_grad else None for one in inputs]


def call(kernel: Kernel, name: str, *arguments: Tensor | int | ctypes.c_double | None) -> int:
    """Call a function of the kernel, in its instruction set; None is no tensor. Return what it returns."""
    passed = [
        address(one.data_ptr()) if isinstance(one, Tensor) else address(None) if one is None
        else ctypes.c_int64(one) if isinstance(one, int) else one
        for one in arguments
    ]  # fmt: skip
    returned: int = getattr(kernel.library, f"{name}_{kernel.instruction_set}")(*passed)
    return returned
