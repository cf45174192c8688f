"""Losses that are made for each client: the balanced one, and how engines ask for any of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.errors import InputError
from nestegg.training.local import Loss, default_loss

_SMOOTHING = 1.0  # samples of every label that each client is taken to have besides its own


class Balanced:
    """The cross entropy; for a client, of outputs shifted by how often that client has each label.

    A client with few labels learns mostly that these are common, which all others contradict, and which uses up its
    clip norm. With log π_k added to output k, where π_k = (n_k + 1) / (n + K) and n_k of the client's n samples have
    label k out of K, that much is known before training starts, and the update says what tells labels apart (Ren et
    al. 2020; Menon et al. 2021; for federations Zhang et al. 2022). A single output is shifted by log(π_1 / π_0).

    What a client contributes still depends on that client alone, and is clipped as before: there is no privacy cost.
    The model is measured by the cross entropy as it is.

    Example:
        >>> labels = torch.tensor([0, 0, 1, 0])
        >>> loss = Balanced().for_client(labels)
        >>> round(float(loss(torch.zeros(4, 3), labels)), 4), round(float(Balanced()(torch.zeros(4, 3), labels)), 4)
        (0.7329, 1.0986)
    """

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the cross entropy, without any shift."""
        return default_loss(outputs, labels)

    def for_client(self, targets: Tensor) -> Loss:
        """Return the loss of one client, given the labels of all its training samples.

        Raises:
            InputError: they are no labels.
        """
        if targets.dim() != 1 or targets.is_floating_point() or bool((targets < 0).any()):
            raise InputError("the balanced loss needs labels: one whole number from 0 on for each sample.")
        return _Shifted(targets)


balanced = Balanced()


class _Shifted:
    """The cross entropy of shifted outputs, for one client."""

    def __init__(self, targets: Tensor) -> None:
        self.counts = np.bincount(targets.cpu().numpy())
        self.shift: Tensor | None = None  # known with the number of outputs

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self.shift is None:
            unseen = max(outputs.shape[-1], 2) - len(self.counts)
            if unseen < 0:
                raise InputError("a client has labels that the model has no outputs for.")
            self.shift = torch.from_numpy(shifts(np.pad(self.counts, (0, unseen)), outputs.shape[-1]))
        return default_loss(outputs + self.shift.to(outputs.device), labels)


def shifts(counts: NDArray[np.int64], outputs: int) -> NDArray[np.float32]:
    """Return what the balanced loss adds to each output, from how often each label occurs.

    Logarithms are of double precision and then rounded to single: C libraries differ in the last bit of the former, so
    that of the latter all but never does from machine to machine.

    Args:
        counts: (..., labels), of one client or of several.
        outputs: of the model; one for each label, or a single one for two labels.

    >>> shifts(np.array([3, 1]), 2), shifts(np.array([3, 1]), 1)
    (array([-0.4054651, -1.0986123], dtype=float32), array([-0.6931472], dtype=float32))
    """
    smoothed = counts + _SMOOTHING
    whole = smoothed.sum(axis=-1, keepdims=True)
    ratios = smoothed[..., 1:] / smoothed[..., :1] if outputs == 1 else smoothed / whole
    return np.asarray(np.log(ratios), np.float32)


def is_entropy(loss: Loss) -> bool:
    """Return whether a loss is one of ours: a cross entropy, which takes labels and keeps nothing between clients."""
    return loss is default_loss or isinstance(loss, Balanced)


def loss_for(loss: Loss, targets: Tensor) -> Loss:
    """Return the loss that a client trains by: what `loss.for_client` makes of its targets, or the loss itself."""
    make: Any = getattr(loss, "for_client", None)
    if make is None:
        return loss
    made: Loss = make(targets)
    return made
