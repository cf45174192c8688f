"""Clients' data as tensors, and whether a model fits them: what is known before anything is trained."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nestegg.errors import InputError
from nestegg.training.local import Loss, Samples
from nestegg.training.losses import is_entropy


def as_pair(whose: str, data: Any) -> Samples:
    """Return somebody's data as tensors: a pair of tensors or arrays, or a dataset of (input, target) pairs.

    Targets and whole-number inputs, such as tokens, keep their type; others become float32.
    """
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(p, Tensor | np.ndarray) for p in data):
        x, y = map(_tensor, data)
    else:
        items = [data[i] for i in range(len(data))]
        x, y = (_stacked([item[part] for item in items]) for part in (0, 1))
    if len(x) != len(y):
        raise InputError(f"{whose} has another number of inputs than of labels; there must be as many.")
    if y.dtype == torch.uint64 and bool((y.view(torch.int64) < 0).any()):
        raise InputError(f"{whose} has targets of 2^63 or more, which no tensor of whole numbers with a sign holds.")
    return x if x.dtype in (torch.int32, torch.int64) else x.float(), y.float() if y.is_floating_point() else y.long()


def described_pair(whose: str, data: Any) -> Samples:
    """Return somebody's data as `as_pair` does, or say what it is instead."""
    try:
        return as_pair(whose, data)
    except InputError:
        raise
    except Exception:
        raise InputError(
            f"{whose} has data of type {type(data).__name__}; it must be a pair of tensors or arrays of numbers, or a "
            "dataset of pairs."
        ) from None


def joined(pairs: Sequence[Samples]) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
    """Return the inputs and targets of several clients, one after the other, and how many each has."""
    full = [pair for pair in pairs if len(pair[1])] or pairs[:1]
    sizes = np.array([len(y) for _, y in pairs], np.int64)
    return torch.cat([x for x, _ in full]), torch.cat([y for _, y in full]), sizes


def size_of(pair: Samples) -> int:
    """Return the bytes that a client's data takes."""
    return sum(part.numel() * part.element_size() for part in pair)


def _tensor(part: Any) -> Tensor:
    """A tensor or an array as a tensor; pandas hands out arrays that must not be written to, which torch would."""
    is_locked = isinstance(part, np.ndarray) and not part.flags.writeable
    return torch.as_tensor(part.copy() if is_locked else part)


def _stacked(values: list[Any]) -> Tensor:
    return torch.stack([torch.as_tensor(value) for value in values]) if values else torch.empty(0)


def check_fit(model: nn.Module, zeros: Samples, loss: Loss) -> int | None:
    """Refuse a model that does not fit the data, or would carry it past the noise, before anything is trained.

    Args:
        model: to be trained.
        zeros: two samples of the shape and type of clients' data; no client's data reaches the model outside a round.
        loss: of outputs and targets.

    Returns:
        How many labels the outputs stand for; None with a loss of one's own.
    """
    for name, module in model.named_modules():
        if getattr(module, "track_running_stats", False):
            raise InputError(
                f"model has running statistics in {name or type(module).__name__!r}: they would leave the clients "
                "without noise. GroupNorm has none."
            )
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise InputError(f"model has {name!r} of type {parameter.dtype}; what is trained is of torch.float32.")
    outputs = _outputs(model, zeros[0])
    if not is_entropy(loss):
        return None
    if zeros[1].is_floating_point():
        raise InputError(
            "clients have targets of a type with decimals; labels are of a type of whole numbers (.astype(int)), and "
            "other targets need a loss of your own."
        )
    return max(outputs.shape[-1], 2)


def are_labels(targets: Tensor, labels: int) -> bool:
    """Return whether targets are one label for each sample, from 0 on."""
    is_whole = targets.dim() == 1 and not targets.is_floating_point()
    return is_whole and not bool(((targets < 0) | (targets >= labels)).any())


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    probe = copy.deepcopy(model).eval()
    try:
        with torch.no_grad():
            outputs = probe(x)
    except Exception as error:
        what = f"shape {tuple(x.shape[1:])} and type {x.dtype}"
        advice = " If these are no tokens, make them floats; in a table one column is enough."
        is_whole = x.dtype in (torch.int32, torch.int64)
        raise InputError(f"model cannot take inputs of {what}: {error}.{advice if is_whole else ''}") from None
    if not isinstance(outputs, Tensor):
        raise InputError(f"model returns a {type(outputs).__name__}; it must return a tensor: wrap it in a module.")
    return outputs
