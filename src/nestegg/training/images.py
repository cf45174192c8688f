"""Images as the compiled kernel takes them, and how it is called with them."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from nestegg.training.kernel import Kernel, address

CHANNELS = 16  # the kernel takes multiples of it, in any instruction set


def fits(images: Tensor) -> bool:
    """Whether the kernel takes these: of single precision on a CPU, channels side by side and a multiple of sixteen."""
    return (
        images.dim() == 4
        and images.dtype == torch.float32
        and images.device.type == "cpu"
        and images.shape[1] % CHANNELS == 0
        and images.numel() > 0
        and images.is_contiguous(memory_format=torch.channels_last)
    )


def call(kernel: Kernel, name: str, *arguments: Tensor | int | ctypes.c_double | None) -> int:
    """Call a function of the kernel, in its instruction set; None is no tensor. Return what it returns."""
    passed = [
        address(one.data_ptr()) if isinstance(one, Tensor) else address(None) if one is None
        else ctypes.c_int64(one) if isinstance(one, int) else one
        for one in arguments
    ]  # fmt: skip
    returned: int = getattr(kernel.library, f"{name}_{kernel.instruction_set}")(*passed)
    return returned
