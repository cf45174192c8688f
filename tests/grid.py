"""A Flower grid in one process: nodes that run a real ClientApp, and whatever can go wrong on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import uuid4

import numpy as np
from bench.grid import ProcessGrid
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo

from nestegg import Budget, Group, Plan, plan
from nestegg.flower.guard import OwnAccount
from nestegg.flower.mod import AccountOf, private_client_app

Fault = Callable[[int, Message, Message], list[Message]]

BUDGETS = {number: (2.0, 2.0, 5.0, 5.0, 10.0, 10.0)[number] for number in range(6)}
STEP = 0.5  # by which every client of these tests moves every weight


def small_plan(rounds: int = 4, factor: float = 1.0, **options: object) -> Plan:
    """Six clients in three groups, all of them sampled in every round; a large factor on ε is little noise."""
    budgets = zip(("strict", "middle", "open"), (2.0, 5.0, 10.0), strict=True)
    groups = [Group(name, 2, Budget(epsilon * factor)) for name, epsilon in budgets]
    return plan(groups, rounds=rounds, spending_rate=1.0, clip_norm=1.0, **options)  # type: ignore[arg-type]


def accounts_in(folder: Path, factor: float = 1.0) -> AccountOf:
    """An account for every partition."""

    def account(context: Context) -> OwnAccount:
        number = int(context.node_config["partition-id"])
        return OwnAccount(folder / str(number), Budget(BUDGETS[number] * factor))

    return account


def model(size: int = 8) -> ArrayRecord:
    """A model with two layers, and a counter that is no weight."""
    return ArrayRecord(
        {
            "a.weight": Array(np.zeros((size, size), np.float32)),
            "a.bias": Array(np.zeros(size, np.float32)),
            "b.weight": Array(np.zeros(size, np.float32)),
            "b.count": Array(np.array(3, np.int64)),
        }
    )


def moved(arrays: ArrayRecord, step: float = STEP) -> ArrayRecord:
    """What training gives in these tests."""
    return ArrayRecord(
        {
            name: Array(np.asarray(array.numpy() + (step if array.dtype == "float32" else 1)))
            for name, array in arrays.items()
        }
    )


def client_app(folder: Path, train: Callable[[ArrayRecord], ArrayRecord] = moved, factor: float = 1.0) -> ClientApp:
    """An app whose training is a function of arrays."""
    app = private_client_app(accounts_in(folder, factor))

    @app.train()
    def go(message: Message, context: Context) -> Message:
        arrays = train(message.content.array_records["arrays"])
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return app


class LocalGrid(ProcessGrid):
    """Nodes 100, 101, … with partitions 0, 1, …; `fault` turns a question and its answer into what arrives."""

    def __init__(self, app: ClientApp, nodes: int, keys: bool = True, fault: Fault | None = None) -> None:
        self.app, self.keys, self.fault = app, keys, fault
        self.online = {100 + number: number for number in range(nodes)}
        self.asked: list[Message] = []
        self._replies: dict[str, list[Message]] = {}

    def get_node_ids(self) -> list[int]:
        return list(self.online)

    def get_nodes(self) -> list[NodeInfo]:
        return [
            NodeInfo(node_id=node, public_key=b"public key of %d" % number if self.keys else b"")
            for node, number in self.online.items()
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = number = str(uuid4())
            numbers.append(number)
            self.asked.append(message)
            self._replies[number] = self._answers(message)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [reply for number in message_ids for reply in self._replies.pop(number, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _answers(self, message: Message) -> list[Message]:
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
