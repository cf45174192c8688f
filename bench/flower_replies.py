"""A grid in one process whose nodes answer at once, each with a reply of the full size that nobody else has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from uuid import uuid4

import numpy as np
import psutil
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from numpy.typing import NDArray

from nestegg.flower import wire
from nestegg.flower.in_process import ProcessGrid


class Replies(ProcessGrid):
    """A grid whose nodes answer when they are asked for their answer, each with an array of its own.

    Attributes:
        seconds: spent on making replies, which the server does not spend, by the clock and of the processor.
        memory: of this process in MB, at every hundredth of the replies of a round.
        sent: bytes of arrays in messages to nodes.
        received: bytes of arrays in replies.
    """

    def __init__(self, nodes: int, parameters: int, answer: wire.Answer) -> None:
        super().__init__()
        self._enrolled = answer
        self._nodes = [NodeInfo(node_id=i, public_key=b"%d" % i) for i in range(2, nodes + 2)]
        self._points = np.random.default_rng(0).integers(-100, 100, parameters, np.int32)
        self._asked: dict[str, Message] = {}
        self.seconds, self.sent, self.received, self.replies = np.zeros(2), 0, 0, 0
        self.memory: list[float] = []

    def get_node_ids(self) -> list[int]:
        """Everybody is there."""
        return [node.node_id for node in self._nodes]

    def get_nodes(self) -> list[NodeInfo]:
        """Everybody has a key."""
        return self._nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Keep the messages."""
        numbers = [str(uuid4()) for _ in messages]
        for number, message in zip(numbers, messages, strict=True):
            message.metadata.__dict__["_message_id"] = number
            self._asked[number] = message
            self.sent += _size(message)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Answer."""
        started = clocks()
        replies = [self._answer(self._asked.pop(number)) for number in message_ids if number in self._asked]
        self.received += sum(map(_size, replies))
        self.seconds += clocks() - started
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """As Flower's grids do."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        if message.metadata.message_type == wire.ENROL:
            return Message(RecordDict({wire.ANSWER: wire.as_record(self._enrolled)}), reply_to=message)
        self.replies += 1
        if self.replies % max(len(self._nodes) // 100, 1) == 0:
            self.memory.append(memory())
        return Message(RecordDict({wire.UPDATE: ArrayRecord({wire.UPDATE: Array(self._points)})}), reply_to=message)


def clocks() -> NDArray[np.float64]:
    """Return the seconds of the clock and of the processor, in this process."""
    return np.array([time.perf_counter(), time.process_time()])


def memory(process: psutil.Process | None = None) -> float:
    """Return the resident memory of a process, by default this one, in MB."""
    return float((process or psutil.Process(os.getpid())).memory_info().rss / 1e6)


def _size(message: Message) -> int:
    arrays = (array for record in message.content.array_records.values() for array in record.values())
    return sum(len(array.data) for array in arrays)
