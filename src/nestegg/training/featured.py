"""Clients with features in the place of their inputs."""

from __future__ import annotations

from torch import Tensor

from nestegg.data.features import Features, check_features, extracted
from nestegg.data.sources import Source
from nestegg.training.samples import as_pair


class Featured:
    """A source with features in the place of inputs, made where a client's data is loaded.

    Example:
        >>> import torch
        >>> from nestegg.data import as_source
        >>> from nestegg.data.features import oriented_gradients
        >>> source = as_source({"ada": (torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 1]))})
        >>> Featured(source, oriented_gradients).load("ada")[0].shape
        torch.Size([3, 441])
    """

    def __init__(self, source: Source, features: Features) -> None:
        self._source, self._features = source, check_features("features", features)
        self.names, self.sizes = source.names, source.sizes
        if hasattr(source, "fingerprints"):
            self.fingerprints = source.fingerprints

    def load(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a client's features and targets."""
        inputs, targets = as_pair("a client", self._source.load(name))
        return extracted(self._features, inputs, max(1, len(inputs))), targets

    def fingerprint(self) -> bytes:
        """Return that of the source."""
        return self._source.fingerprint()
