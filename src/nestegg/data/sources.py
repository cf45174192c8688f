"""Sources of clients: who there is, by name, and the data of those who are sampled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.data.joining import check_name, normal, places
from nestegg.errors import InputError

_NUMBERS = "biuf"  # NumPy's kinds: truth values, whole numbers with and without sign, floating-point numbers


@runtime_checkable
class Source(Protocol):
    """Clients by name, whose data is loaded when they are sampled.

    Everything but the names is secret. A source of rows in a table may also have
    `load_rows(positions) -> (inputs, targets, sizes)`, which loads many clients at once, one after the other; it is
    called from several threads and forked processes. `announce_rows(positions)`, if there is one, hears before of
    clients who will be loaded soon. One that also has `fingerprints() -> list of bytes`, in the order of names, each of
    which changes with that client's data, lets a run go on without the data of those who withdrew.

    Example:
        >>> class Squares:
        ...     names = ("ada", "bob")
        ...     sizes = None
        ...     def load(self, name):
        ...         x = torch.arange(4.0)[:, None]
        ...         return (x, x[:, 0] ** 2)
        ...     def fingerprint(self):
        ...         return b"squares, version 1"
        >>> isinstance(Squares(), Source)
        True
    """

    @property
    def names(self) -> Sequence[str]:
        """Unique names of all clients, in the source's own order."""

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """Samples of each client, in the order of names, if they are known without loading any."""

    def load(self, name: str) -> Any:
        """Return a client's (inputs, targets) or dataset of pairs; a client for whom this raises counts as zero."""

    def fingerprint(self) -> bytes:
        """Return bytes that change with anybody's data, as far as can be told cheaply.

        They are secret, and only used under a key.
        """


class MappingSource:
    """Clients in a mapping of names to pairs of tensors or arrays, datasets of pairs, or functions that return these.

    Example:
        >>> source = MappingSource({"ada": (torch.zeros(3, 2), torch.tensor([0, 1, 1]))})
        >>> source.names, source.sizes
        (('ada',), array([3]))
    """

    def __init__(self, clients: Mapping[str, Any]) -> None:
        for name, value in clients.items():
            check_name(name)
            _check_value(name, value)
        self._clients = dict(clients)
        self.names: Sequence[str] = tuple(self._clients)

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """Samples of each client; None if anybody's data comes from a function."""
        values = self._clients.values()
        if any(map(_is_function, values)):
            return None
        return np.array([len(value[1]) if _is_pair(value) else len(value) for value in values], np.int64)

    def load(self, name: str) -> Any:
        """Return what the mapping holds, or what its function returns."""
        value = self._clients[name]
        return value() if _is_function(value) else value

    def fingerprint(self) -> bytes:
        """Return a digest of names, of tensors' and arrays' contents, and of datasets' lengths."""
        digest = hashlib.sha256()
        for name, value in self._clients.items():
            _add(digest, name, value)
        return digest.digest()

    def fingerprints(self) -> list[bytes]:
        """Return the same for each client."""
        digests = [hashlib.sha256() for _ in self._clients]
        for digest, (name, value) in zip(digests, self._clients.items(), strict=True):
            _add(digest, name, value)
        return [digest.digest() for digest in digests]

    def without(self, names: Iterable[str]) -> MappingSource:
        """Return the same clients without the data of some, also if the mapping has forgotten who they are."""
        known = {normal(name): name for name in self.names}
        empty = (torch.empty(0), torch.empty(0))
        return MappingSource({**self._clients, **{known.get(normal(name), name): empty for name in names}})


class Floats:
    """A source whose inputs become numbers of single precision, also those that are whole."""

    def __init__(self, source: Source) -> None:
        self._source, self.names, self.sizes = source, source.names, source.sizes
        if hasattr(source, "load_rows"):
            self.load_rows = self._load_rows
        if hasattr(source, "fingerprints"):
            self.fingerprints = source.fingerprints
        if hasattr(source, "announce_rows"):
            self.announce_rows = source.announce_rows

    def load(self, name: str) -> Any:
        """Return a client's data, its inputs as numbers; what is no pair stays as it is."""
        data = self._source.load(name)
        return (torch.as_tensor(data[0]).float(), data[1]) if _is_pair(data) else data

    def fingerprint(self) -> bytes:
        """Return that of the source."""
        return self._source.fingerprint()

    def _load_rows(self, positions: NDArray[np.int64]) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
        inputs, targets, sizes = self._source.load_rows(positions)  # type: ignore[attr-defined]
        return inputs.float(), targets, sizes


class _Without:
    """A source in which some clients have no data; who is not in it any more comes last."""

    def __init__(self, source: Source, gone: Sequence[str]) -> None:
        found = places(source.names, gone)
        new = [name for name, position in found.items() if position is None]
        absent = [at for at in found.values() if at is not None]
        self._source, self.names = source, [*source.names, *new]
        self._absent = {self.names[at] for at in absent} | {*new}
        self.sizes = source.sizes
        if source.sizes is not None:
            self.sizes = np.concatenate([source.sizes, np.zeros(len(new), np.int64)])
            self.sizes[absent] = 0
        if hasattr(source, "load_rows"):  # of those who have rows, whose positions are as they were
            self.load_rows = source.load_rows
        if hasattr(source, "fingerprints"):
            self.fingerprints = self._fingerprints

    def load(self, name: str) -> Any:
        """Return a client's data, if it is still here."""
        if name in self._absent:
            raise InputError(f"the data of client {name!r} is gone.")
        return self._source.load(name)

    def fingerprint(self) -> bytes:
        """Return that of the source."""
        return self._source.fingerprint()

    def _fingerprints(self) -> list[bytes] | None:
        found = self._source.fingerprints()  # type: ignore[attr-defined]
        if found is None:
            return None
        return [b"" if name in self._absent else one for name, one in zip_longest(self.names, found)]


def without(source: Source | Mapping[str, Any], names: Sequence[str]) -> Source:
    """Return a source in which some clients have no data, for a run that goes on after they withdrew.

    They may be deleted from it; they keep their places in the plan, and are never sampled.

    Example:
        >>> left = without({"ada": (torch.zeros(3, 2), torch.tensor([0, 1, 1]))}, ["bob"])
        >>> left.names, left.sizes
        (('ada', 'bob'), array([3, 0]))
    """
    found: Source = as_source(source)
    return found.without(names) if isinstance(found, MappingSource) else _Without(found, names)


def as_source(clients: Any) -> Any:
    """Return a mapping as a source; leave a source, and clients given by position, as they are.

    Clients by position are called client-1, client-2 and so on.

    Example:
        >>> as_source({"ada": lambda: (torch.zeros(3, 2), torch.tensor([0, 1, 1]))}).names
        ('ada',)
        >>> as_source({7: (torch.zeros(3, 2), torch.tensor([0, 1, 1]))})
        Traceback (most recent call last):
        nestegg.errors.InputError: the client's name 7 must be a text that is not empty.
    """
    if isinstance(clients, Mapping):
        return MappingSource(clients)
    if isinstance(clients, Source) or (hasattr(clients, "__len__") and hasattr(clients, "__getitem__")):
        return clients
    raise InputError(
        f"clients of type {type(clients).__name__} must be a mapping of names to data, a source, or a list."
    )


def _add(digest: hashlib._Hash, name: str, value: Any) -> None:
    """Add a client's name, tensors' and arrays' contents, or a dataset's length to a digest."""
    tensors = value if _is_pair(value) else getattr(value, "tensors", ())  # as a TensorDataset has
    length = "function" if _is_function(value) else len(value)
    digest.update(repr((name, type(value).__qualname__, length)).encode())
    for tensor in map(torch.as_tensor, tensors):
        digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, Tensor | np.ndarray) for part in value)


def _is_function(value: Any) -> bool:
    return callable(value) and not hasattr(value, "__getitem__")


def _check_value(name: str, value: Any) -> None:
    if _is_pair(value):
        if any(isinstance(part, np.ndarray) and part.dtype.kind not in _NUMBERS for part in value):
            raise InputError(f"clients[{name!r}] has an array that holds other things than numbers.")
        if not all(part.ndim for part in value) or len(value[0]) != len(value[1]):
            shapes = " and ".join(str(tuple(part.shape)) for part in value)
            raise InputError(
                f"clients[{name!r}] has arrays of shapes {shapes}; there must be as many inputs as targets."
            )
    elif isinstance(value, tuple | str | Mapping) or not (
        _is_function(value) or (hasattr(value, "__len__") and hasattr(value, "__getitem__"))
    ):
        raise InputError(
            f"clients[{name!r}] must be a pair of tensors or arrays, a dataset of pairs, or a function without "
            "arguments that returns one of these."
        )
