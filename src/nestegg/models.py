"""Models by name, with weights that follow from a seed."""

from __future__ import annotations

import torch
from torch import nn

from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.networks import MODELS

NETWORKS = {"digits": "mlp", "adult": "mlp", "mnist": "cnn", "fashion-mnist": "cnn", "cifar10": "resnet20"}


def make_model(name: str, shape: torch.Size, classes: int, seed: int) -> nn.Module:
    """A model for inputs of a shape, with weights that follow from the seed; two classes need one output."""
    one_of("model.name", name, MODELS)
    if name in ("cnn", "resnet20") and len(shape) != 3:
        raise InputError(f"model.name = {name!r} needs images; the dataset has inputs of shape {tuple(shape)}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[name](shape, 1 if classes == 2 else classes)
