"""Clients with features in the place of their inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nestegg.data.features import Features, check_features, extracted
from nestegg.data.sources import MappingSource, Source, as_source
from nestegg.errors import InputError
from nestegg.training.local import Samples
from nestegg.training.samples import as_pair, described_pair


def with_features(
    clients: Sequence[Any] | Mapping[str, Any] | Source, features: Features
) -> list[Samples] | dict[str, Samples] | Source:
    """Return clients, as `Federation` takes them, with features in the place of inputs.

    Of data in memory they are computed here, once; of a source, and of functions, where a client's data is loaded, and
    kept with it. A client whose features cannot be had contributes zero, and nothing tells which one that is.

    Args:
        clients: a list, a mapping of names to data, or a source.
        features: a function of a batch of inputs that gives one vector for each, or a module without trainable
            parameters. It must be fixed before anybody looks at clients' data.

    Raises:
        InputError: the features could change, or of no client in memory can they be had.

    Example:
        >>> from nestegg.data import oriented_gradients
        >>> images = {"ada": (torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 1]))}
        >>> with_features(images, oriented_gradients)["ada"][0].shape
        torch.Size([3, 441])
    """
    check_features("features", features)
    if isinstance(clients, Sequence):
        return _in_memory([described_pair(f"client {number}", one) for number, one in enumerate(clients, 1)], features)
    source = as_source(clients)
    if not isinstance(source, Source):
        kind = type(clients).__name__
        raise InputError(f"clients of type {kind} must be a mapping of names to data, a source, or a list.")
    if isinstance(source, MappingSource) and source.sizes is not None:
        pairs = [described_pair(f"client {name!r}", source.load(name)) for name in source.names]
        return dict(zip(source.names, _in_memory(pairs, features), strict=True))
    return Featured(source, features)


class Featured:
    """A source with features in the place of inputs, made where a client's data is loaded.

    Example:
        >>> from nestegg.data import as_source, oriented_gradients
        >>> source = as_source({"ada": (torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 1]))})
        >>> Featured(source, oriented_gradients).load("ada")[0].shape
        torch.Size([3, 441])
    """

    def __init__(self, source: Source, features: Features) -> None:
        self._source, self._features = source, check_features("features", features)
        self.names, self.sizes = source.names, source.sizes
        if hasattr(source, "fingerprints"):
            self.fingerprints = self._fingerprints

    def load(self, name: str) -> Samples:
        """Return a client's features and targets."""
        return _featured(as_pair("a client", self._source.load(name)), self._features)

    def fingerprint(self) -> bytes:
        """Return that of the source, and a module's weights; a function is known by the run's version alone."""
        return bytes(self._source.fingerprint()) + _digest(self._features)

    def _fingerprints(self) -> list[bytes] | None:
        found: Iterable[bytes] | None = self._source.fingerprints()  # type: ignore[attr-defined]
        weights = _digest(self._features)
        return None if found is None else [bytes(one) + weights for one in found]


def _in_memory(pairs: list[Samples], features: Features) -> list[Samples]:
    """Everybody's features; who has none is without data, which counts as zero."""
    made: list[Samples] = []
    why: InputError | None = None
    for pair in pairs:
        try:
            made.append(_featured(pair, features))
        except InputError as error:
            why = error
            made.append((torch.empty(0), torch.empty(0)))
    if why is not None and not any(len(targets) for _, targets in made):
        raise why
    return made


def _featured(pair: Samples, features: Features) -> Samples:
    inputs, targets = pair
    return (extracted(features, inputs) if len(targets) else inputs), targets


def _digest(features: Features) -> bytes:
    """A digest of a module's weights; nothing of a function."""
    if not isinstance(features, nn.Module):
        return b""
    digest = hashlib.sha256()
    for name, value in features.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(_bytes(value))
    return digest.digest()


def _bytes(value: Tensor) -> memoryview:
    return value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
