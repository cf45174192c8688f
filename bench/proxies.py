"""Public data in the shape of Adult, to measure influence on: nothing of Adult itself goes in but its schema."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from nestegg.data import Dataset, load_dataset

_ROWS = 32_561  # as many as Adult has
_LENGTH = math.sqrt(14.0)  # of its rows: six numbers of unit variance, and eight of its words


def digits_above_four(folder: str | None = None) -> Dataset:
    """MNIST's images as rows of that length, and whether the digit is five or more; $NESTEGG_DATA names its folder."""
    mnist = load_dataset("mnist", folder)

    def inputs(images: Tensor) -> Tensor:
        return functional.normalize(functional.avg_pool2d(images, 2).flatten(1)) * _LENGTH

    def labels(digits: Tensor) -> Tensor:
        return (digits >= 5).long()

    train_x, train_y = inputs(mnist.train_x[:_ROWS]), labels(mnist.train_y[:_ROWS])
    return Dataset("digits-above-four", 2, train_x, train_y, inputs(mnist.test_x), labels(mnist.test_y))
