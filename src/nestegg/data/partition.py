"""How training data is divided among clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nestegg.checks import one_of, positive, whole
from nestegg.errors import InputError

PARTITIONS = ("dirichlet", "iid", "shards")
MINIMUM = 2  # samples that every client has at least
SHARDS_EACH = 2

Indices = NDArray[np.int64]


def partition(
    labels: Indices, clients: int, kind: str, concentration: float, stream: np.random.Generator
) -> list[Indices]:
    """Indices of every client's samples; no sample is lost or given twice.

    Args:
        labels: label of every sample.
        clients: N.
        kind: dirichlet (each class divided by a Dirichlet draw over the clients, as the paper), iid (at random, equal
            sizes), or shards (sorted by label, two runs a client, as McMahan et al. 2017).
        concentration: β of the Dirichlet distribution; small is uneven.
        stream: where randomness comes from.
    """
    one_of("federation.partition", kind, PARTITIONS)
    if labels.size < clients * MINIMUM:
        raise InputError(
            f"federation.clients = {clients} needs {clients * MINIMUM} samples, {MINIMUM} for each; "
            f"the dataset has {labels.size}."
        )
    if kind == "dirichlet":
        parts = _dirichlet(labels, clients, positive("federation.dirichlet", concentration), stream)
    elif kind == "iid":
        parts = np.array_split(stream.permutation(labels.size), clients)
    else:
        shards = np.array_split(np.argsort(labels, kind="stable"), clients * SHARDS_EACH)
        order = stream.permutation(len(shards)).reshape(clients, SHARDS_EACH)
        parts = [np.concatenate([shards[i] for i in row]) for row in order]
    return [np.sort(part) for part in _with_minimum(parts, stream)]


def thinned(parts: Sequence[Indices], most: int, stream: np.random.Generator) -> list[Indices]:
    """At most so many samples of every client, chosen at random."""
    whole("federation.samples_per_client", most, MINIMUM)
    return [np.sort(stream.permutation(part)[:most]) for part in parts]


def _dirichlet(labels: Indices, clients: int, beta: float, stream: np.random.Generator) -> list[Indices]:
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = stream.permutation(np.flatnonzero(labels == label))
        shares = stream.dirichlet(np.full(clients, beta))
        cuts = (np.cumsum(shares)[:-1] * members.size).round().astype(int)
        for piece, part in zip(pieces, np.split(members, cuts), strict=True):
            piece.append(part)
    return [np.concatenate(piece) for piece in pieces]


def _with_minimum(parts: list[Indices], stream: np.random.Generator) -> list[Indices]:
    """Give clients below the minimum samples of whoever has most at that moment."""
    for i in range(len(parts)):
        while parts[i].size < MINIMUM:
            rich = int(np.argmax([part.size for part in parts]))
            chosen = int(stream.integers(parts[rich].size))
            parts[i] = np.append(parts[i], parts[rich][chosen])
            parts[rich] = np.delete(parts[rich], chosen)
    return parts
