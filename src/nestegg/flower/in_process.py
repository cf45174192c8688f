"""A Flower grid in one process: nodes that run a real ClientApp, and whatever can go wrong on the way.

For audits, measurements and tests: there is no SuperLink and no network. `loopback` has real processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

Fault = Callable[[int, Message, Message], list[Message]]

FIRST_NODE = 100


class ProcessGrid(Grid):
    """A grid without a SuperLink: there is no run to be told of, and messages are made by their constructor."""

    def __init__(self) -> None:
        identify()

    def set_run(self, run: Run) -> None:
        """There is none."""
        raise RuntimeError("a grid in one process has no run")

    @property
    def run(self) -> Run:
        """There is none."""
        raise RuntimeError("a grid in one process has no run")

    def create_message(self, *arguments: object, **options: object) -> Message:
        """Flower's own advice: use the constructor of `Message`."""
        raise RuntimeError("messages are made by their constructor")


class LocalGrid(ProcessGrid):
    """Nodes 100, 101 and so on, with partitions 0, 1 and so on.

    Args:
        app: that all nodes run.
        nodes: how many there are.
        keys: whether nodes have public keys.
        fault: turns a partition, a question and its answer into what arrives.

    Attributes:
        online: the partition of every node that is there.
        asked: all questions so far.
    """

    def __init__(self, app: ClientApp, nodes: int, keys: bool = True, fault: Fault | None = None) -> None:
        super().__init__()
        self.app, self.keys, self.fault = app, keys, fault
        self.online = {FIRST_NODE + number: number for number in range(nodes)}
        self.asked: list[Message] = []
        self._replies: dict[str, list[Message]] = {}

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are there."""
        return list(self.online)

    def get_nodes(self) -> list[NodeInfo]:
        """Return the nodes that are there, with their keys."""
        return [
            NodeInfo(node_id=node, public_key=public_key(number) if self.keys else b"")
            for node, number in self.online.items()
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Number the messages, and have them answered."""
        numbers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = number = str(uuid4())
            numbers.append(number)
            self.asked.append(message)
            self._replies[number] = self.answers(message)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return what arrived, once."""
        return [reply for number in message_ids for reply in self._replies.pop(number, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Return all answers at once."""
        return self.pull_messages(self.push_messages(messages))

    def answers(self, message: Message) -> list[Message]:
        """Return what arrives in answer to a message."""
        partition = self.online[message.metadata.dst_node_id]
        config: dict[str, bool | float | int | str] = {"partition-id": partition, "num-partitions": len(self.online)}
        context = Context(1, message.metadata.dst_node_id, config, RecordDict(), {})
        question = Message(
            RecordDict(dict(message.content.items())), message.metadata.dst_node_id, message.metadata.message_type
        )
        question.metadata.__dict__["_message_id"] = message.metadata.message_id
        try:
            reply = self.app(question, context)
        except Exception as error:
            reply = Message(Error(2, str(error)), reply_to=question)
        return [reply] if self.fault is None else self.fault(partition, message, reply)


def public_key(partition: int) -> bytes:
    """Return what stands for the key of a node."""
    return b"public key of %d" % partition


def identify() -> None:
    """Let this process make messages, as a ServerApp's may."""
    try:
        _ = TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id
    except RuntimeError:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
