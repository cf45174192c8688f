"""Models by name, with weights that follow from a seed."""

from __future__ import annotations

import torch
from torch import nn

from nestegg.checks import one_of
from nestegg.errors import InputError
from nestegg.models.networks import IMAGE_MODELS, MODELS
from nestegg.named import called, is_named

NETWORKS = {"digits": "mlp", "adult": "mlp", "mnist": "cnn", "fashion-mnist": "cnn", "cifar10": "resnet20"}


def make_model(name: str, shape: torch.Size, classes: int, seed: int, code: str | None = None) -> nn.Module:
    """Return a model for inputs of a shape, with weights that follow from the seed; two classes need one output.

    Args:
        name: one of ours, or "module:function" of a shape and a number of outputs.
        shape: of one input.
        classes: that are told apart.
        seed: of the weights.
        code: folder of one's own modules.
    """
    outputs = 1 if classes == 2 else classes
    if name in IMAGE_MODELS and len(shape) != 3:
        raise InputError(f"model.name = {name!r} needs images; the dataset has inputs of shape {tuple(shape)}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not is_named(name):
            return MODELS[one_of("model.name", name, MODELS)](shape, outputs)
        model = called("model.name", name, code, shape, outputs)
    if not isinstance(model, nn.Module):
        raise InputError(f"model.name = {name!r} returned a {type(model).__name__}; it must return a torch module.")
    return model
