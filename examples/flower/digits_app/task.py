"""The user's own code, which knows nothing of privacy: a model, the data of a client, and how to train."""

import torch
from torch import nn

from nestegg.data import load_dataset


def make_model() -> nn.Module:
    """Logistic regression."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def train(model: nn.Module, partition: int, partitions: int) -> None:
    """Five epochs of SGD on a client's digits.

    Without torch.optim, which takes a second to import: Flower starts a process for every message.
    """
    digits = load_dataset("digits")
    x, y = digits.train_x[partition::partitions], digits.train_y[partition::partitions]
    weights = list(model.parameters())
    for _ in range(5):
        for batch in torch.randperm(len(y)).split(32):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            with torch.no_grad():
                for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                    weight -= 0.5 * slope


def accuracy(model: nn.Module) -> float:
    """On the digits that nobody trains on."""
    digits = load_dataset("digits")
    with torch.no_grad():
        return float((model(digits.test_x).argmax(dim=1) == digits.test_y).float().mean())
