"""What stays behind after a round: no reply in the server's memory, and none on the SuperLink."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from bench.flower_growth import ANSWER, plan_of
from bench.flower_growth import model as vector
from bench.flower_nodes import Fleet
from bench.flower_replies import Replies
from bench.superlink_inside import SuperLinkInside
from flwr.app import ArrayRecord, Message

from nestegg.flower import PlannedStrategy
from nestegg.flower.exchange import discard
from nestegg.flower.wire import ENROL

NODES, ROUNDS, SIZE = 4, 5, 50


def left_after_each_round(folder: Path, late: set[int], asked: list[Message]) -> list[tuple[int, int, int]]:
    """Messages, replies and objects on a SuperLink after every round; late nodes reply when the round is over."""
    left = []
    with SuperLinkInside(None, NODES) as link:

        def is_late(number: int, message: Message) -> bool:
            if message.metadata.message_type != ENROL:
                asked.append(message)
            return message.metadata.message_type != ENROL and number in late

        fleet = Fleet(link.nodes, SIZE, ANSWER, is_late)

        def after(round_: int, arrays: ArrayRecord) -> None:
            fleet.send_held()
            state = link.state
            left.append((state.num_message_ins(), state.num_message_res(), len(state.object_store)))

        strategy = PlannedStrategy(plan_of(NODES, ROUNDS, 1.0), folder)
        strategy.start(link.grid(fleet.step), vector(SIZE), timeout=0.01, evaluate_fn=after)
    return left


def test_a_superlink_keeps_nothing_of_a_round_that_all_have_answered(tmp_path: Path) -> None:
    assert left_after_each_round(tmp_path, set(), []) == [(0, 0, 0)] * (ROUNDS + 1)


def test_replies_that_come_too_late_do_not_pile_up_on_the_superlink(tmp_path: Path) -> None:
    """They are taken before the next round: only those of the last round are there, however long the run is."""
    asked: list[Message] = []
    start, first, *others = left_after_each_round(tmp_path, {0, 2}, asked)
    assert start == (0, 0, 0)
    assert first[:2] == (2, 2)
    assert first[2] > 0
    assert others == [first] * (ROUNDS - 1)
    assert len(asked) == NODES * ROUNDS  # who is late is asked again all the same
    assert {message.metadata.ttl for message in asked} == {600.01}  # later still, and the SuperLink takes no reply


def test_a_message_that_is_never_answered_is_forgotten_once_no_reply_can_come() -> None:
    grid = Replies(1, SIZE, ANSWER)
    late = {"over": 0.0, "not yet": float("inf")}
    discard(grid, late)
    assert list(late) == ["not yet"]


def test_a_server_holds_one_reply_at_a_time(tmp_path: Path) -> None:
    class Watched(Replies):
        alive, most = weakref.WeakSet[Message](), 0

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            replies = super().pull_messages(message_ids)
            self.alive.update(reply for reply in replies if reply.metadata.message_type != ENROL)
            self.most = max(self.most, len(self.alive))
            return replies

    grid = Watched(30, SIZE, ANSWER)
    PlannedStrategy(plan_of(30, 2, 1.0), tmp_path).start(grid, vector(SIZE))
    assert grid.replies == 60
    assert 1 <= grid.most <= 2  # the one being added, and the next


def test_orders_to_many_nodes_go_out_in_many_requests(tmp_path: Path) -> None:
    """Flower's client gives a request 30 s, and a SuperLink on SQLite needs 40 ms for a message."""

    class Counted(Replies):
        sizes: ClassVar[list[int]] = []

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            numbers = super().push_messages(messages)
            self.sizes.append(len(numbers))
            return numbers

    grid = Counted(120, SIZE, ANSWER)
    PlannedStrategy(plan_of(120, 1, 1.0), tmp_path).start(grid, vector(SIZE))
    assert grid.replies == 120
    assert sum(grid.sizes) == 2 * 120  # offers and orders
    assert max(grid.sizes) <= 50
