"""What nodes hold of a round, with workers that only add: real ones are in tests/cluster."""

from __future__ import annotations

from types import SimpleNamespace

from nestegg.training.cluster import Node
from nestegg.training.gathering import Gathering, NodeSum
from nestegg.training.seats import Seat
from nestegg.training.shares import Share


def seat_on(name: str) -> Seat:
    """A worker whose answers are there at once."""
    adds = SimpleNamespace(remote=lambda *totals: sum(totals))
    return Seat(Node(name, name, 1, 0), SimpleNamespace(add=adds))


def test_each_node_sends_one_sum_of_all_that_it_has() -> None:
    seats, gathering = [seat_on("one"), seat_on("two")], Gathering()
    for place in range(40):
        gathering.keep(NodeSum(seats[place % 2], 2**place, [Share(place, [])], bits=1.0, broken=place % 4))
    parts = gathering.collect()
    assert sum(parts) == 2**40 - 1
    assert sorted(share.place for part in parts.values() for share in part.shares) == [*range(40)]
    assert {part.seat.node.name: (part.bits, part.broken) for part in parts.values()} == {
        "one": (20.0, 20),
        "two": (20.0, 40),
    }
    assert gathering.collect() == {}


def test_a_sum_that_is_alone_is_not_added_to_anything() -> None:
    gathering = Gathering()
    gathering.keep(part := NodeSum(seat_on("one"), 7, [Share(0, [])]))
    assert gathering.collect() == {7: part}
