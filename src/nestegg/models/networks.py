"""Networks of the paper's experiments. None has running statistics: they would leave the clients without noise.

This file needs torch and nothing else, so that other simulators can be measured on the very same networks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

HIDDEN = 32


def linear(shape: torch.Size, outputs: int) -> nn.Module:
    """Softmax or logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape.numel(), outputs))


def softmax(shape: torch.Size, outputs: int) -> nn.Module:
    """The same from zero: weights drawn at random would be noise that nothing asks for."""
    model = linear(shape, outputs)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def mlp(shape: torch.Size, outputs: int) -> nn.Module:
    """One hidden layer of 32, as the paper's network for Adult."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape.numel(), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def cnn(shape: torch.Size, outputs: int) -> nn.Module:
    """McMahan et al. 2017: two 5 × 5 convolutions with pooling and a layer of 512; 1,663,370 parameters on 28 × 28."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, outputs),
    )


class Residual(nn.Module):
    """Two 3 × 3 convolutions with group normalisation, and a shortcut (He et al. 2016, option A)."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.stride = 1 if channels == outputs else 2
        self.first = nn.Conv2d(channels, outputs, 3, self.stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(8, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        if self.stride > 1:
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
        return torch.relu(y + x)


def resnet20(shape: torch.Size, outputs: int) -> nn.Module:
    """ResNet-20 for CIFAR (He et al. 2016) with GroupNorm in the place of BatchNorm."""
    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1, bias=False),
        nn.GroupNorm(8, 16),
        nn.ReLU(),
        *(Residual(a, b) for a, b in pairwise(widths)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, outputs),
    )


MODELS: dict[str, Callable[[torch.Size, int], nn.Module]] = {
    "linear": linear,
    "softmax": softmax,
    "mlp": mlp,
    "cnn": cnn,
    "resnet20": resnet20,
}
