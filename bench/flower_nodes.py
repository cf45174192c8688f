"""Nodes of a SuperLink, many in one process, which answer with random lattice points in the place of training.

A hundred SuperNodes that start a process for every message do not fit on two cores. These do all that a SuperNode
does to the SuperLink: pull a message and its objects, confirm them, push a reply and its objects. They do it over TLS,
with keys of their own (`over_tls`), or by calling the SuperLink's own functions (`bench.superlink_inside`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_MAX_INTERVAL
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node as NodeProto
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from nestegg.flower import wire
from nestegg.flower.in_process import identify

Late = Callable[[int, Message], bool]


class FleetApi(Protocol):
    """What of the SuperLink's Fleet API a node at work needs, under Flower's own names."""

    def SendNodeHeartbeat(self, request: SendNodeHeartbeatRequest) -> SendNodeHeartbeatResponse:  # noqa: D102, N802
        ...

    def PullMessages(self, request: PullMessagesRequest) -> PullMessagesResponse:  # noqa: D102, N802
        ...

    def PushMessages(self, request: PushMessagesRequest) -> PushMessagesResponse:  # noqa: D102, N802
        ...

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: D102, N802
        ...

    def PushObject(self, request: PushObjectRequest) -> PushObjectResponse:  # noqa: D102, N802
        ...

    def ConfirmMessageReceived(  # noqa: D102, N802
        self, request: ConfirmMessageReceivedRequest
    ) -> ConfirmMessageReceivedResponse: ...


@dataclass
class Node:
    """One node: its way to the SuperLink, its id there, and the replies that it holds back."""

    api: FleetApi
    node_id: int
    held: list[Message] = field(default_factory=list)


class Fleet:
    """Nodes that answer whatever they are asked.

    Args:
        nodes: that are online.
        parameters: of the model.
        answer: to the enrolment.
        late: tells of a node's number and an order whether the reply is held back until `send_held`.

    Attributes:
        answered: messages that were answered, or held back.
    """

    def __init__(self, nodes: list[Node], parameters: int, answer: wire.Answer, late: Late | None = None) -> None:
        identify()
        self.nodes, self._parameters, self._answer, self._late = nodes, parameters, answer, late
        self._rng = np.random.default_rng(0)
        self.answered = 0
        self._beaten = time.monotonic()

    def step(self, asked: Collection[int] | None = None) -> int:
        """Let nodes look once for a message, and answer it; returns how many had one.

        Args:
            asked: ids of those that look; by default all. Looking in vain is most of the work where few are sampled.
        """
        if time.monotonic() - self._beaten > HEARTBEAT_MAX_INTERVAL / 2:
            self._beat()
        looking = (one for one in enumerate(self.nodes) if asked is None or one[1].node_id in asked)
        return sum(self._work(number, node) for number, node in looking)

    def send_held(self) -> None:
        """Send the replies that were held back."""
        for node in self.nodes:
            while node.held:
                self._send(node, node.held.pop())

    def _beat(self) -> None:
        """Say that all nodes are there: a SuperLink gives up those that are silent."""
        for node in self.nodes:
            me = NodeProto(node_id=node.node_id)
            node.api.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=me, heartbeat_interval=HEARTBEAT_MAX_INTERVAL))
        self._beaten = time.monotonic()

    def _work(self, number: int, node: Node) -> bool:
        me = NodeProto(node_id=node.node_id)
        found = node.api.PullMessages(PullMessagesRequest(node=me))
        if not found.messages_list:
            return False
        message, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        run = message.metadata.run_id
        pull = make_pull_object_fn_protobuf(node.api.PullObject, me, run)
        pull_objects([one.object_id for one in iterate_object_tree(tree)], pull, initial_backoff=0.1)
        node.api.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=me, run_id=run, message_object_id=message.metadata.message_id)
        )
        reply = Message(self._content(message), reply_to=message)
        if self._late is not None and self._late(number, message):
            node.held.append(reply)
        else:
            self._send(node, reply)
        self.answered += 1
        return True

    def _send(self, node: Node, reply: Message) -> None:
        me, run = NodeProto(node_id=node.node_id), reply.metadata.run_id
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            bare, tree = message_to_proto(remove_content_from_message(reply)), get_object_tree(reply)
            told = node.api.PushMessages(
                PushMessagesRequest(node=me, messages_list=[bare], message_object_trees=[tree])
            )
            for number, one in get_all_nested_objects(reply).items():
                if number in told.objects_to_push:
                    request = PushObjectRequest(
                        node=me,
                        run_id=run,
                        session_id=told.session_id,
                        object_id=number,
                        object_content=one.deflate(),
                    )
                    node.api.PushObject(request)

    def _content(self, message: Message) -> RecordDict:
        if message.metadata.message_type == wire.ENROL:
            return RecordDict({wire.ANSWER: wire.as_record(self._answer)})
        points = self._rng.integers(-100, 100, self._parameters, np.int32)  # all different, as real updates are
        return RecordDict({wire.UPDATE: ArrayRecord({wire.UPDATE: Array(points)})})


@contextmanager
def over_tls(count: int, address: str, certificate: bytes) -> Iterator[list[Node]]:
    """Register nodes with a SuperLink, as its operator would, and connect them."""
    keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(count)]
    with ControlHttpClient.from_server_address(
        address, False, certificate, [RuntimeVersionHttpInterceptor("flwr")]
    ) as control:
        for key in keys:
            control.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key.public_key())))
    with ExitStack() as stack:
        nodes = []
        for key in keys:
            interceptors: list[ProtobufClientInterceptor] = [
                RuntimeVersionHttpInterceptor("SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
            ]
            api = stack.enter_context(FleetHttpClient.from_server_address(address, False, certificate, interceptors))
            public = public_key_to_bytes(key.public_key())
            request = ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT_MAX_INTERVAL)
            nodes.append(Node(api, api.ActivateNode(request).node_id))
        yield nodes
