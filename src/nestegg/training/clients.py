"""Everybody's data, in the order of the plan: all in memory, or of each client when it is sampled."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.data.sources import Source
from nestegg.errors import InputError, reason
from nestegg.training.local import Samples
from nestegg.training.samples import are_labels, as_pair, described_pair, joined, size_of
from nestegg.training.seeding import seeded
from nestegg.training.waiting import Moment

Integers = NDArray[np.int64]
_TRIED = 10  # clients of a source that are asked for the shape of their data
_CACHE = 1 << 28  # bytes of clients' data that a process keeps


class Clients(Protocol):
    """Everybody's data, by place in the plan.

    Attributes:
        zeros: two samples of zeros, of the shape and type of everybody's data.
        sizes: samples of each client, if known.
        empty: clients who have no data, as far as known; they contribute zero.
        is_lazy: whether data is loaded when it is asked for.
    """

    zeros: Samples
    sizes: Integers | None
    empty: frozenset[int]
    is_lazy: bool

    @property
    def waited(self) -> float:
        """Seconds that loading single clients has waited in this process, for a disk or a network."""

    def __len__(self) -> int: ...

    def samples(self, client: int) -> Samples:
        """Return a client's data; raises where it cannot be read."""

    def rows(self, block: Sequence[int]) -> tuple[Tensor, Tensor, Integers]:
        """Return the inputs and targets of some clients, one after the other, and how many each has."""

    def announce(self, block: Sequence[int]) -> None:
        """Hear of clients who will be asked for soon, perhaps in another process."""

    def keys(self, block: Sequence[int]) -> Integers:
        """Return what the shuffles of some clients are keyed by."""

    def expect(self, labels: int | None) -> None:
        """Refuse targets that are no labels below this number, unless it is None: of everybody now, or when loaded."""

    def move(self, device: str) -> None:
        """Have everybody's data on another device from now on."""

    def fingerprint(self) -> Iterable[Tensor | bytes]:
        """Return what changes when anybody's data does; a secret."""

    def fingerprints(self) -> Sequence[bytes] | None:
        """Return for each client what changes when its data does, in the plan's order, if that can be told; secrets."""


class ClientsInMemory:
    """Clients all of whose data is there, as pairs of tensors or datasets; shuffles are keyed by name, if given."""

    is_lazy = False
    waited = 0.0

    def __init__(self, clients: Sequence[Any], device: str = "cpu", names: Sequence[str] | None = None) -> None:
        self.names = names
        pairs = [described_pair(f"client {number}", data) for number, data in enumerate(clients, 1)]
        self.empty = frozenset(i for i, (_, y) in enumerate(pairs) if len(y) == 0)
        full = next((pair for i, pair in enumerate(pairs) if i not in self.empty), None)
        if full is None:
            raise InputError("clients have no data: there is nothing to train on.")
        x, y = (torch.zeros_like(part[:1]).to(device) for part in full)
        self.zeros = torch.cat([x, x]), torch.cat([y, y])
        for number, pair in enumerate(pairs, 1):
            kinds = [(part.dtype, part.shape[1:]) for part in pair]
            if len(pair[1]) and kinds != [(part.dtype, part.shape[1:]) for part in full]:
                raise InputError(f"client {number} has data of another shape or type than others.")
        # Of clients without data one sample of zeros stands in the place, which is never trained on.
        self.pairs = [(x, y) if i in self.empty else moved(pair, device) for i, pair in enumerate(pairs)]
        self.sizes: Integers | None = np.array([len(y) for _, y in self.pairs])

    def __len__(self) -> int:
        return len(self.pairs)

    def samples(self, client: int) -> Samples:
        """Return a client's data."""
        return self.pairs[client]

    def rows(self, block: Sequence[int]) -> tuple[Tensor, Tensor, Integers]:
        """Return the inputs and targets of some clients, one after the other, and how many each has."""
        return joined([self.samples(client) for client in block])

    def announce(self, block: Sequence[int]) -> None:
        """Do nothing: their data is there."""

    def keys(self, block: Sequence[int]) -> Integers:
        """Return the clients' positions, or numbers that follow from their names."""
        return np.asarray(block, np.int64) if self.names is None else keys_of([self.names[one] for one in block])

    def expect(self, labels: int | None) -> None:
        """Refuse targets of anybody that are no labels below this number."""
        if labels is not None and not all(are_labels(y, labels) for _, y in self.pairs):
            raise InputError(
                f"the model's outputs stand for {labels} labels, so a label must be one whole number from 0 to "
                f"{labels - 1}; some clients have others."
            )

    def move(self, device: str) -> None:
        """Have everybody's data on another device from now on."""
        self.zeros = moved(self.zeros, device)
        self.pairs = [moved(pair, device) for pair in self.pairs]

    def fingerprint(self) -> Iterable[Tensor | bytes]:
        """Return everybody's data."""
        return [part for pair in self.pairs for part in pair]

    def fingerprints(self) -> Sequence[bytes] | None:
        """Return a digest of each client's data."""
        return [_digest(() if place in self.empty else pair) for place, pair in enumerate(self.pairs)]


class LazyClients:
    """Clients by name, whose data is loaded in the process that trains them.

    A client whose data cannot be read, or is not of everybody's shape and type, raises: it counts as zero in its round.

    Args:
        source: of the data.
        names: everybody in the plan's order.
        positions: their places in the source.
        device: where they train.
    """

    is_lazy = True

    def __init__(self, source: Source, names: Sequence[str], positions: Integers, device: str = "cpu") -> None:
        self.source, self.names, self.positions, self.device = source, names, positions, device
        sizes = None if source.sizes is None else np.asarray(source.sizes, np.int64)
        if sizes is not None and (sizes.shape != (len(source.names),) or (sizes < 0).any()):
            raise InputError(f"sizes of the source must be {len(source.names)} numbers, one for each name, from 0 on.")
        self.sizes = None if sizes is None else sizes[positions]
        self.empty = frozenset() if self.sizes is None else frozenset(np.flatnonzero(self.sizes == 0).tolist())
        self._labels: int | None = None
        self._kept: OrderedDict[int, Samples] = OrderedDict()
        self._bytes, self.waited = 0, 0.0
        self._rows, self._announce = (getattr(source, name, None) for name in ("load_rows", "announce_rows"))
        self.zeros = self._probed()

    def __len__(self) -> int:
        return len(self.names)

    def samples(self, client: int) -> Samples:
        """Return a client's data; raises where it cannot be read."""
        if client not in self._kept:
            self._keep(client, self._load(client))
        self._kept.move_to_end(client)
        return self._kept[client]

    def rows(self, block: Sequence[int]) -> tuple[Tensor, Tensor, Integers]:
        """Return the inputs and targets of some clients, one after the other, and how many each has."""
        if self._rows is None:
            return joined([self.samples(client) for client in block])
        x, y, sizes = self._rows(self.positions[list(block)])
        counts = np.asarray(sizes, np.int64)
        if counts.shape != (len(block),) or (counts < 0).any() or counts.sum() != len(y):
            raise InputError("a source gave another number of rows than it says.")
        return *self._checked(as_pair("a client", (x, y))), counts

    def announce(self, block: Sequence[int]) -> None:
        """Have a source that can do so read ahead; whatever becomes of it, their data is loaded all the same."""
        if block and self._announce is not None:
            with suppress(Exception):  # code of others may do anything
                self._announce(self.positions[list(block)])

    def keys(self, block: Sequence[int]) -> Integers:
        """Return numbers that follow from the clients' names."""
        return keys_of([self.names[client] for client in block])

    def expect(self, labels: int | None) -> None:
        """Have clients with targets that are no labels below this number count as zero."""
        self._labels = labels

    def move(self, device: str) -> None:
        """Have data that is loaded from now on on another device."""
        self.device, self.zeros = device, moved(self.zeros, device)
        self._kept, self._bytes = OrderedDict(), 0

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was loaded: another process loads for itself."""
        return {**self.__dict__, "_kept": OrderedDict(), "_bytes": 0}

    def fingerprint(self) -> Iterable[Tensor | bytes]:
        """Return what the source says of its data, and who is who in it."""
        try:
            said = bytes(self.source.fingerprint())
        except (Exception, SystemExit) as error:  # code of others may do anything
            raise InputError(f"the source of clients gives no fingerprint: {reason(error)}.") from error
        return [said, *(name.encode() for name in self.names)]

    def fingerprints(self) -> Sequence[bytes] | None:
        """Return what the source says of each client, if it does."""
        if not hasattr(self.source, "fingerprints"):
            return None
        try:
            said = self.source.fingerprints()
            return None if said is None else [bytes(said[place]) for place in self.positions.tolist()]
        except (Exception, SystemExit) as error:  # code of others may do anything
            raise InputError(f"the source of clients gives no fingerprints: {reason(error)}.") from error

    def _load(self, client: int) -> Samples:
        return self._checked(self._raw(client))

    def _raw(self, client: int) -> Samples:
        """A client's data, by the source's spelling of its name; what is drawn for it follows from the name alone."""
        before = Moment.now()
        try:
            with seeded(int(self.keys([client])[0])):
                return as_pair("a client", self.source.load(self.source.names[int(self.positions[client])]))
        finally:
            self.waited += before.waited()

    def _checked(self, pair: Samples) -> Samples:
        for part, expected in zip(pair, self.zeros, strict=True):
            if len(part) and (part.dtype, part.shape[1:]) != (expected.dtype, expected.shape[1:]):
                raise InputError("a client has data of another shape or type than others.")
        if self._labels is not None and not are_labels(pair[1], self._labels):
            raise InputError("a client has labels that the model has no outputs for.")
        return moved(pair, self.device)

    def _keep(self, client: int, pair: Samples) -> None:
        self._kept[client] = pair
        self._bytes += size_of(pair)
        while self._bytes > _CACHE and len(self._kept) > 1:
            self._bytes -= size_of(self._kept.popitem(last=False)[1])

    def _probed(self) -> Samples:
        """Two samples of zeros like the data of most of the first clients that can be read."""
        why, found = "nobody has any", Counter[tuple[tuple[torch.dtype, torch.Size], ...]]()
        known = np.arange(len(self)) if self.sizes is None else np.flatnonzero(self.sizes)
        for client in known[:_TRIED].tolist():
            try:
                pair = self._raw(client)
            except (Exception, SystemExit) as error:  # code of others may do anything
                why = reason(error)
                continue
            if len(pair[1]):
                found[tuple((part.dtype, part.shape[1:]) for part in pair)] += 1
        if not found:
            raise InputError(f"clients have no data that could be read: {why}.")
        ((inputs, targets), _), *_ = found.most_common(1)
        x, y = (torch.zeros((2, *shape), dtype=dtype, device=self.device) for dtype, shape in (inputs, targets))
        return x, y


def moved(pair: Samples, device: str) -> Samples:
    """Return inputs and targets on a device."""
    return pair[0].to(device), pair[1].to(device)


def keys_of(names: Sequence[str]) -> Integers:
    """Return a number for each name, the same everywhere."""
    normal = (name if name.isascii() else unicodedata.normalize("NFC", name) for name in names)
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in normal)
    return np.array([int.from_bytes(digest, "little") >> 1 for digest in digests], np.int64)


def _digest(pair: Iterable[Tensor]) -> bytes:
    digest = hashlib.sha256()
    for part in pair:
        digest.update(f"{part.dtype} {tuple(part.shape)}\n".encode())
        digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()
