"""Networks of the paper's experiments. None has running statistics: they would leave the clients without noise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from nestegg.checks import one_of
from nestegg.errors import InputError

HIDDEN = 32


def linear(shape: torch.Size, outputs: int) -> nn.Module:
    """Softmax or logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape.numel(), outputs))


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
        shortcut = x[:, :, :: self.stride, :: self.stride]
        extra = y.shape[1] - x.shape[1]
        return torch.relu(y + nn.functional.pad(shortcut, (0, 0, 0, 0, 0, extra)))


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
    "mlp": mlp,
    "cnn": cnn,
    "resnet20": resnet20,
}


def make_model(name: str, shape: torch.Size, classes: int, seed: int) -> nn.Module:
    """A model for inputs of a shape, with weights that follow from the seed; two classes need one output."""
    one_of("model.name", name, MODELS)
    if name in ("cnn", "resnet20") and len(shape) != 3:
        raise InputError(f"model.name = {name!r} needs images; the dataset has inputs of shape {tuple(shape)}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](shape, 1 if classes == 2 else classes)
