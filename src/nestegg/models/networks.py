"""Networks of the paper's experiments, and small ones that suit noise.

None has running statistics: they would leave the clients without noise.
This file needs torch and nothing else, so that other simulators can be measured on the very same networks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

HIDDEN = 32
_LEAST_SIDE, _POOLED = 10, 4  # of tanh-cnn: pixels that its convolutions need, and cells that its linear layers see
_GROUPS, _LEAST_VARIANCE = 8, 1e-8


def linear(shape: torch.Size, outputs: int) -> nn.Module:
    """Softmax or logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape.numel(), outputs))


def softmax(shape: torch.Size, outputs: int) -> nn.Module:
    """The same from zero: weights drawn at random would be noise that nothing asks for."""
    return _from_zero(linear(shape, outputs))


def _from_zero(model: nn.Module) -> nn.Module:
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


def tanh_cnn(shape: torch.Size, outputs: int) -> nn.Module:
    """Papernot et al. 2020 (arXiv 2007.14191): few parameters, bounded activations; 26,010 parameters on 28 × 28.

    Larger images are pooled to as many cells, so that only their colours add parameters; smaller ones have a margin.
    """
    return _with_hidden(*_tanh_convolutions(shape), outputs)


def tanh_cnn_groupnorm(shape: torch.Size, outputs: int) -> nn.Module:
    """The same with group normalisation before the tangents of its convolutions: 26,106 parameters on 28 × 28."""
    return _with_hidden(*_tanh_convolutions(shape, is_normed=True), outputs)


def tanh_cnn_standardised(shape: torch.Size, outputs: int) -> nn.Module:
    """The same with group normalisation and standardised weights, as De et al. 2022 (arXiv 2204.13650) have it."""
    return _with_hidden(*_tanh_convolutions(shape, StandardisedConv2d, is_normed=True), outputs)


def tanh_cnn_head(shape: torch.Size, outputs: int) -> nn.Module:
    """A linear layer from zero on its normed convolutions, which stay as drawn: 5,130 trained parameters on 28 × 28."""
    width, parts = _tanh_convolutions(shape, is_normed=True)
    return nn.Sequential(*(part.requires_grad_(False) for part in parts), _from_zero(nn.Linear(width, outputs)))


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose weights have mean 0 and variance 1/inputs for every output (Qiao et al. 2019).

    It follows from the weights alone. Noise on them then changes neither the length nor the mean of what convolves.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution with standardised weights."""
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        scale = self.weight[0].numel() * variance + _LEAST_VARIANCE
        weight = (self.weight - mean) * scale.rsqrt()
        return nn.functional.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def _tanh_convolutions(
    shape: torch.Size, kind: type[nn.Conv2d] = nn.Conv2d, *, is_normed: bool = False
) -> tuple[int, list[nn.Module]]:
    """The convolutions of the tanh networks, and how many numbers come out of them."""
    channels, *sides = shape
    height, width = (max(side, _LEAST_SIDE) for side in sides)
    cells = [min(_POOLED, ((side // 2 - 1) - _POOLED) // 2 + 1) for side in (height, width)]
    first, second = kind(channels, 16, 8, stride=2, padding=3), kind(16, 32, 4, stride=2)
    return 32 * cells[0] * cells[1], [
        nn.ZeroPad2d((0, width - sides[1], 0, height - sides[0])),
        *((first, nn.GroupNorm(_GROUPS, 16)) if is_normed else (first,)),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        *((second, nn.GroupNorm(_GROUPS, 32)) if is_normed else (second,)),
        nn.Tanh(),
        nn.AdaptiveMaxPool2d((cells[0], cells[1])),  # on 28 × 28 that is 2 × 2 with stride 1, as they have it
        nn.Flatten(),
    ]


def _with_hidden(width: int, parts: list[nn.Module], outputs: int) -> nn.Module:
    return nn.Sequential(*parts, nn.Linear(width, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, outputs))


class RectifiedNorm(nn.GroupNorm):
    """Group normalisation, a shortcut added to it if there is one, and a rectifier: one part, as it can be one pass."""

    def forward(self, x: Tensor, beside: Tensor | None = None) -> Tensor:
        """Return the images, normed, with the shortcut added, and rectified."""
        y = super().forward(x)
        return torch.relu(y if beside is None else y + beside)


class Residual(nn.Module):
    """Two 3 × 3 convolutions with group normalisation, and a shortcut (He et al. 2016, option A)."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.stride = 1 if channels == outputs else 2
        self.first = nn.Conv2d(channels, outputs, 3, self.stride, padding=1, bias=False)
        self.first_norm = RectifiedNorm(_GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = RectifiedNorm(_GROUPS, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = self.second(self.first_norm(self.first(x)))
        if self.stride > 1:
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
        normed: Tensor = self.second_norm(y, x)
        return normed


def resnet20(shape: torch.Size, outputs: int) -> nn.Module:
    """ResNet-20 for CIFAR (He et al. 2016) with GroupNorm in the place of BatchNorm."""
    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1, bias=False),
        nn.GroupNorm(_GROUPS, 16),
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
    "tanh-cnn": tanh_cnn,
    "tanh-cnn-groupnorm": tanh_cnn_groupnorm,
    "tanh-cnn-standardised": tanh_cnn_standardised,
    "tanh-cnn-head": tanh_cnn_head,
    "resnet20": resnet20,
}
IMAGE_MODELS = tuple(name for name in MODELS if name not in ("linear", "softmax", "mlp"))  # those take any shape
