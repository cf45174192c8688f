"""A SuperLink without its network: Flower's own state, object store and request handlers, in this process.

with SuperLinkInside(folder / "state.db", nodes=100) as link:
    fleet = Fleet(link.nodes, parameters, answer)
    strategy.start(link.grid(fleet.step), arrays)

The grid is the one that a ServerApp gets, and the nodes are those of `bench.flower_nodes`; what is left out is HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flwr.app import Message
from flwr.common.constant import HEARTBEAT_MAX_INTERVAL, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.server.superlink.linkstate import LinkState, LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers

from bench.flower_nodes import Node


class SuperLinkInside:
    """The state of a SuperLink with one run at work and some nodes online.

    Args:
        database: its file; without one, the state is in memory, as a SuperLink's without `--database`.
        nodes: how many there are.

    Attributes:
        state: Flower's.
        nodes: for a `Fleet`.
    """

    def __init__(self, database: Path | None, nodes: int) -> None:
        name = FLWR_IN_MEMORY_DB_NAME if database is None else str(database)
        self.state: LinkState = LinkStateFactory(name, NoOpFederationManager(), ObjectStoreFactory(name)).state()
        run = self.state.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        (self._run,) = self.state.get_run_info(run_ids=[run])
        assert self._run.primary_task_id is not None
        self.task = int(self._run.primary_task_id)
        self.state.claim_task(self.task)
        self.state.activate_task(self.task)
        api = _Fleet(self.state)
        self.nodes = []
        for number in range(nodes):
            node = self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, b"public key of %d" % number, 0)
            self.state.activate_node(node, HEARTBEAT_MAX_INTERVAL)
            self.nodes.append(Node(api, node))

    def __enter__(self) -> Self:
        """Make messages of this process messages of the run."""
        self._before = TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = self._run.run_id, SUPERLINK_NODE_ID, self.task
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = self._before

    def grid(self, work: Callable[[set[int]], object]) -> HttpGrid:
        """Return the grid of a ServerApp, whose nodes work as soon as messages are out."""
        grid = _Grid(self.state, self.task, work)
        grid.set_run(self._run)
        return grid


class _Grid(HttpGrid):
    """Flower's grid; its client calls what the SuperLink's routes call."""

    def __init__(self, state: LinkState, task: int, work: Callable[[set[int]], object]) -> None:
        super().__init__(token="none")
        self._client: Any = _Runtime(state, task)
        self._work = work

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        asked = {message.metadata.dst_node_id for message in messages}
        numbers = super().push_messages(messages)
        self._work(asked)
        return numbers


class _Runtime:
    """The Runtime API, for the ServerApp, by its handlers."""

    def __init__(self, state: LinkState, task: int) -> None:
        self._state, self._task = state, task

    def __getattr__(self, method: str) -> Callable[[Any], Any]:
        handler = getattr(runtime_handlers, _snake(method))

        def call(request: Any) -> Any:
            self._state.acknowledge_task_heartbeat(self._task)
            (task,) = self._state.get_tasks(task_ids=[self._task])
            return handler(request, self._state, task)

        return call


class _Fleet:
    """The Fleet API, for the nodes, by its handlers."""

    def __init__(self, state: LinkState) -> None:
        self._state = state

    def SendNodeHeartbeat(self, request: SendNodeHeartbeatRequest) -> SendNodeHeartbeatResponse:  # noqa: N802
        return fleet_handlers.send_node_heartbeat(request, self._state)

    def PullMessages(self, request: PullMessagesRequest) -> PullMessagesResponse:  # noqa: N802
        return fleet_handlers.pull_messages(request, self._state, self._state.object_store)

    def PushMessages(self, request: PushMessagesRequest) -> PushMessagesResponse:  # noqa: N802
        return fleet_handlers.push_messages(request, self._state)

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802
        return fleet_handlers.pull_object(request, self._state)

    def PushObject(self, request: PushObjectRequest) -> PushObjectResponse:  # noqa: N802
        return fleet_handlers.push_object(request, self._state)

    def ConfirmMessageReceived(  # noqa: N802
        self, request: ConfirmMessageReceivedRequest
    ) -> ConfirmMessageReceivedResponse:
        return fleet_handlers.confirm_message_received(request, self._state, self._state.object_store)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
