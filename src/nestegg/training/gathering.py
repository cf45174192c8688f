"""Sums of a round while they lie on the nodes of a cluster: those of a node become one before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nestegg.training.cluster import Node
from nestegg.training.seats import Seat
from nestegg.training.shares import Share

_MOST = 8  # sums of a node that may wait to be added up


@dataclass(frozen=True, eq=False)
class NodeSum:
    """The sum of some shares, which lies on the node that trained them.

    Attributes:
        seat: the worker that made it.
        total: by which Ray finds it.
        shares: that it is the sum of.
        bits: clients in it whose updates were below their norms.
        broken: clients in it whose updates were not finite.
    """

    seat: Seat
    total: Any
    shares: Sequence[Share]
    bits: float = 0.0
    broken: int = 0


class Gathering:
    """What the nodes hold of a round. Nothing is waited for: a sum may be added up before it is there."""

    def __init__(self) -> None:
        self._held: dict[Node, list[NodeSum]] = {}

    def keep(self, part: NodeSum) -> None:
        """Leave a sum where it is; many of a node become one there."""
        held = self._held.setdefault(part.seat.node, [])
        held.append(part)
        if len(held) >= _MOST:
            self._held[part.seat.node] = [_added(held)]

    def collect(self) -> dict[Any, NodeSum]:
        """Return the sum of each node, by what to ask Ray for, and hold nothing any more."""
        parts = [_added(held) for held in self._held.values()]
        self._held = {}
        return {part.total: part for part in parts}


def _added(parts: Sequence[NodeSum]) -> NodeSum:
    """Have the last one's worker add up the sums of its node."""
    if len(parts) == 1:
        return parts[0]
    seat = parts[-1].seat
    return NodeSum(
        seat,
        seat.actor.add.remote(*(part.total for part in parts)),
        [share for part in parts for share in part.shares],
        sum(part.bits for part in parts),
        sum(part.broken for part in parts),
    )
