"""What the strategy itself costs a round: 1,000 clients, 1.6 million parameters, replies that are there already.

    python -m bench.flower_overhead

No network and no training: a grid that answers every order at once with a prepared update. Beside it, the same replies
through Flower's FedAvg, which averages and accounts for nothing.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.strategy import FedAvg

from nestegg import Budget, Group, plan
from nestegg.flower import PlannedStrategy, wire
from nestegg.flower.in_process import ProcessGrid

CLIENTS, SIZE, ROUNDS = 1000, 1_600_000, 3


class Instant(ProcessGrid):
    """Nodes that answer at once."""

    def __init__(self, update: RecordDict | None) -> None:
        super().__init__()
        self.update, self.seconds = update, 0.0
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        """Everybody is there."""
        return list(range(2, CLIENTS + 2))

    def get_nodes(self) -> list[NodeInfo]:
        """Everybody has a key."""
        return [NodeInfo(node_id=i, public_key=b"%d" % i) for i in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Keep the messages."""
        numbers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = number = str(uuid4())
            self._replies[number] = message
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Answer them; making up the answers does not count."""
        started = time.perf_counter()
        replies = [self._answer(self._replies.pop(number)) for number in message_ids]
        self.seconds += time.perf_counter() - started
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """As Flower's grids do."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        if message.metadata.message_type == wire.ENROL:
            answer = wire.Answer(epsilon=10.0, delta=1e-5, group="all", partition=-1)
            return Message(RecordDict({wire.ANSWER: wire.as_record(answer)}), reply_to=message)
        assert self.update is not None
        return Message(self.update, reply_to=message)


def main() -> None:
    """Measure, and say what was measured."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    values = rng.normal(size=SIZE).astype(np.float32)
    values /= 2 * np.linalg.norm(values)
    model = ArrayRecord({"a.weight": Array(np.zeros(SIZE, np.float32))})

    points = (values * 2.0**22).astype(np.int32)
    grid = Instant(RecordDict({wire.UPDATE: ArrayRecord({wire.UPDATE: Array(points)})}))
    made = plan([Group("all", CLIENTS, Budget(10.0))], rounds=ROUNDS, spending_rate=1.0, clip_norm=1.0)
    with tempfile.TemporaryDirectory() as folder:
        strategy, at = PlannedStrategy(made, Path(folder)), []
        started = time.perf_counter()
        strategy.start(grid, model, evaluate_fn=lambda round_, arrays: at.append((time.perf_counter(), grid.seconds)))
        enrolment = at[0][0] - started
    rounds = [(b[0] - a[0]) - (b[1] - a[1]) for a, b in pairwise(at)]
    print(f"enrolment of {CLIENTS} clients: {enrolment:.2f} s, once")
    print(f"nestegg, a round: {np.mean(rounds):.2f} s ({', '.join(f'{one:.2f}' for one in rounds)})")

    weighted = RecordDict({"arrays": ArrayRecord({"a.weight": Array(values)}), "m": MetricRecord({"num-examples": 1})})
    theirs, fedavg, times = Instant(weighted), FedAvg(fraction_evaluate=0.0), []
    for round_ in range(1, ROUNDS + 1):
        started, before = time.perf_counter(), theirs.seconds
        messages = list(fedavg.configure_train(round_, model, ConfigRecord(), theirs))
        fedavg.aggregate_train(round_, theirs.send_and_receive(messages))
        times.append(time.perf_counter() - started - (theirs.seconds - before))
    print(f"Flower's FedAvg, a round: {np.mean(times):.2f} s ({', '.join(f'{one:.2f}' for one in times)})")


if __name__ == "__main__":
    main()
