"""The user's own code, which knows nothing of privacy: a model, the data of a client, and how to train."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

TEST = 360  # samples that nobody trains on


def make_model() -> nn.Module:
    """Logistic regression."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 10))


def load(start: int, stop: int | None, step: int = 1) -> tuple[Tensor, Tensor]:
    """Some of scikit-learn's digits."""
    x, y = load_digits(return_X_y=True)
    return torch.from_numpy((x / 16.0).astype(np.float32))[start:stop:step], torch.from_numpy(y)[start:stop:step]


def train(model: nn.Module, partition: int, partitions: int) -> None:
    """Five epochs on a client's digits."""
    x, y = load(TEST + partition, None, partitions)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(5):
        for batch in torch.randperm(len(y)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()


def accuracy(model: nn.Module) -> float:
    """On the digits that nobody trains on."""
    x, y = load(0, TEST)
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())
