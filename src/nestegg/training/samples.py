"""Clients' data as tensors, and whether a model fits them: what is known before anything is trained."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nestegg.errors import InputError
from nestegg.training.local import Loss, Samples, default_loss


def as_samples(clients: Sequence[Any]) -> tuple[list[Samples], frozenset[int]]:
    """Return clients' data as pairs of tensors, and who has none.

    Data is a pair of tensors, or any dataset of (input, label) pairs. A client without data is a client all the same:
    it contributes zero. One sample of zeros stands in its place, which is never trained on.
    """
    pairs = [_pair(number, data) for number, data in enumerate(clients, 1)]
    empty = frozenset(i for i, (_, y) in enumerate(pairs) if len(y) == 0)
    full = next((pair for i, pair in enumerate(pairs) if i not in empty), None)
    if full is None and pairs:
        raise InputError("clients have no data: there is nothing to train on.")
    return [
        (torch.zeros_like(full[0][:1]), torch.zeros_like(full[1][:1])) if full and i in empty else pair
        for i, pair in enumerate(pairs)
    ], empty


def _pair(number: int, data: Any) -> Samples:
    """One client's data. Targets and whole-number inputs, such as tokens, keep their type; others become float32."""
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Tensor | np.ndarray) for part in data):
        x, y = (torch.as_tensor(part) for part in data)
    else:
        items = [data[i] for i in range(len(data))]
        x, y = (_stacked([item[part] for item in items]) for part in (0, 1))
    if len(x) != len(y):
        raise InputError(f"client {number} has another number of inputs than of labels; there must be as many.")
    return x if x.dtype in (torch.int32, torch.int64) else x.float(), y.float() if y.is_floating_point() else y.long()


def _stacked(values: list[Any]) -> Tensor:
    return torch.stack([torch.as_tensor(value) for value in values]) if values else torch.empty(0)


def check_fit(model: nn.Module, samples: Sequence[Samples], loss: Loss) -> None:
    """Refuse a model that does not fit the data, or would carry it past the noise, before anything is trained."""
    for name, module in model.named_modules():
        if getattr(module, "track_running_stats", False):
            raise InputError(
                f"model has running statistics in {name or type(module).__name__!r}: they would leave the clients "
                "without noise. GroupNorm has none."
            )
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            raise InputError(f"model has {name!r} of type {parameter.dtype}; what is trained is of torch.float32.")
    x = torch.zeros_like(samples[0][0][:2])  # no client's data reaches the model outside a round
    probe = copy.deepcopy(model).eval()
    with torch.no_grad():
        try:
            outputs = probe(x)
        except (RuntimeError, ValueError, IndexError) as error:
            what = f"shape {tuple(x.shape[1:])} and type {x.dtype}"
            raise InputError(f"model cannot take inputs of {what}: {error}.") from None
    if loss is not default_loss:
        return
    if any(y.is_floating_point() for _, y in samples):
        raise InputError("clients have targets that are no whole numbers; give a loss of your own for them.")
    labels = max(outputs.shape[-1], 2)
    if any(y.dim() != 1 or bool((y < 0).any()) or bool((y >= labels).any()) for _, y in samples):
        raise InputError(
            f"model has {outputs.shape[-1]} outputs, so a label must be one whole number from 0 to {labels - 1}; "
            "some clients have others."
        )
