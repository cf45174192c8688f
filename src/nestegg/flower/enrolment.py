"""Enrolment: one question to every node, and who is in the federation from then on, present or not."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore import log

from nestegg.checks import one_of, positive
from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.flower import wire
from nestegg.flower.exchange import pull, push
from nestegg.flower.terms import Terms
from nestegg.planning import Budget
from nestegg.schema import Section, read

IDENTITIES = ("key", "partition-id")


@dataclass(frozen=True)
class Enrolling:
    """How nodes become clients.

    Attributes:
        roster: the group of every client, by name; by default all nodes may enrol, and take the group that fits them.
        identity: key, where SuperNodes authenticate; partition-id in simulations.
        timeout: seconds to wait until all are enrolled.
    """

    roster: Mapping[str, str] | None = None
    identity: str = "key"
    timeout: float = 120.0

    def __post_init__(self) -> None:
        one_of("identity", self.identity, IDENTITIES)
        positive("timeout", self.timeout)


_PAUSE = 0.2  # seconds between looks at who is there
_TRIES = 5  # offers to a node whose answers are lost
_REASONS = 3  # that an error names
_REFUSED = "it refused"


class Member(Section):
    """A client of the federation: its name, its group, and the budget it has declared."""

    client: str
    group: str
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Roster:
    """Everybody who is in the federation, in the order of the plan's groups. It never changes."""

    terms: str
    members: tuple[Member, ...]

    @property
    def clients(self) -> list[str]:
        """Their names."""
        return [member.client for member in self.members]

    @property
    def budgets(self) -> list[Budget]:
        """Their budgets."""
        return [Budget(member.epsilon, member.delta) for member in self.members]

    def save(self, path: Path, stamp: Mapping[str, str]) -> None:
        """Write the roster, durably, with what every file of its run says about itself."""
        content = {"terms": self.terms, "members": [member.model_dump() for member in self.members], **stamp}
        write_atomically(path, json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Roster:
        """The roster that was saved."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            members = tuple(read(Member, one, str(path)) for one in content["members"])
            return cls(str(content["terms"]), members)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} cannot be read: {error}.") from None


class Enrolment:
    """Which nodes are which clients, and what they have declared.

    A client is known by the SHA-256 of its node's public key. That means something where the SuperLink authenticates
    nodes: elsewhere Flower makes up a key at every start. In a simulation there are none, and a node's partition-id is
    believed.

    Args:
        terms: on offer.
        identity: key, or partition-id.
        places: the group of every client that may enrol; by default anybody may, and takes a group that fits.
        withdrawn: clients that have withdrawn, and enrol in nothing any more.
    """

    def __init__(
        self,
        terms: Terms,
        identity: str,
        places: Mapping[str, str] | None = None,
        withdrawn: Collection[str] = frozenset(),
    ) -> None:
        self._terms, self._identity, self._places, self._withdrawn = terms, identity, places, withdrawn
        self._closed = False
        self._tries: Counter[int] = Counter()  # offers that a node has had
        self._pending: dict[str, int] = {}  # nodes that have not answered theirs, by the number of the message
        self._refused: dict[int, str] = {}  # nodes that do not enrol, and what the server knows of the reason
        self._client_of: dict[int, str] = {}
        self.members: dict[str, Member] = {}

    def present(self, grid: Grid) -> dict[str, int]:
        """The node of every client that is there now."""
        if self._identity == "key":
            return {client_of_key(node.public_key): node.node_id for node in grid.get_nodes() if node.public_key}
        online = set(grid.get_node_ids())
        return {client: node for node, client in self._client_of.items() if node in online}

    def step(self, grid: Grid) -> None:
        """Make the offer to every node that has not had it yet, and take the answers that are there by now."""
        busy = self._refused.keys() | set(self._pending.values())
        nodes = [node for node in grid.get_nodes() if node.node_id not in busy and self._may_enrol(node)]
        for number, offer in push(grid, [self._offer(node) for node in nodes]).items():
            self._pending[number] = offer.metadata.dst_node_id
        for number, node_id in list(self._pending.items()):
            reply = pull(grid, number)
            if reply is not None:
                del self._pending[number]
                self._take(node_id, reply)

    def wait(self, grid: Grid, timeout: float) -> Roster:
        """Ask until every place of the plan is taken, or the time is over.

        Raises:
            InputError: all nodes refuse, which nobody waits for; or the roster is open, and some places are not taken:
                the sentence says which.
        """
        end = time.monotonic() + timeout
        while True:
            self.step(grid)
            self._check_refusals()
            roster, missing = self._roster()
            if not missing or time.monotonic() >= end:
                break
            time.sleep(_PAUSE)
        if missing and not self._closed:
            raise InputError(f"it is not complete after {timeout:g} s: {missing}{self._advice(grid)}")
        return roster

    def close(self, roster: Roster) -> None:
        """Nobody else is asked from now on."""
        self._places = {member.client: member.group for member in roster.members}
        self._closed = True

    def _offer(self, node: NodeInfo) -> Message:
        self._tries[node.node_id] += 1
        group = (self._places or {}).get(self._known(node) or "")
        return Message(RecordDict({wire.OFFER: wire.offer(self._terms, group)}), node.node_id, wire.ENROL)

    def _take(self, node_id: int, reply: Message) -> None:
        if reply.has_error() and reply.error.code != ErrorCode.MOD_FAILED_PRECONDITION:
            return  # lost on the way: it is asked again
        try:
            if reply.has_error():
                raise InputError(f"{_REFUSED if wire.is_refusal(reply) else 'it failed'}.")
            answer = wire.answer_of(reply.content)
            group, budget = self._terms.row(answer.group).group, Budget(answer.epsilon, answer.delta)
            client = self._client_of.get(node_id) or client_of_partition(answer.partition)
            if client in self._withdrawn and not self._closed:
                raise InputError(f"{client} has withdrawn.")
            if client in self.members:
                raise InputError(f"it says that it is {client}, who is enrolled.")
            if self._places is not None and self._places.get(client) != group.name:
                raise InputError(f"group {group.name!r} is not the one that was offered.")
            if budget.epsilon < group.budget.epsilon or budget.delta < group.budget.delta:
                raise InputError(f"its budget, {budget.epsilon:g}, does not cover group {group.name!r}.")
        except InputError as error:
            log(WARNING, "Node %d does not enrol: %s", node_id, error)
            self._refused[node_id] = str(error).rstrip(".")
            return
        self._client_of[node_id] = client
        self.members[client] = Member(client=client, group=group.name, epsilon=budget.epsilon, delta=budget.delta)

    def _check_refusals(self) -> None:
        """Refuse to wait for nodes that have all refused: as many as could take part, and nobody is still to answer.

        Every node is asked, so this tells nothing of a cohort, and a node's answer follows from its account.
        """
        wanted = max(self._terms.plan.clients, len(self._places or ()))
        if self.members or self._pending or len(self._refused) < wanted:
            return
        kinds = list(dict.fromkeys(self._refused.values()))
        reasons = "" if kinds == [_REFUSED] else f" ({'; '.join(kinds[:_REASONS])})"
        raise InputError(
            f"all {len(self._refused)} nodes have refused{reasons}: their own logs say why. No round was begun."
        )

    def _roster(self) -> tuple[Roster, str]:
        """The roster, and what is missing in it, in words."""
        chosen, missing = [], []
        for row in self._terms.plan.groups:
            name, places = row.group.name, row.group.clients
            taken = sorted((m for m in self.members.values() if m.group == name), key=lambda m: m.client)
            chosen += taken[:places]
            if len(taken) < places:
                missing.append(f"group {name!r} has {len(taken)} of {places} clients")
            elif len(taken) > places:
                log(
                    INFO, "Group %r has %d places; %d clients too many stay outside.", name, places, len(taken) - places
                )
        return Roster(self._terms.digest, tuple(chosen)), ", ".join(missing)

    def _known(self, node: NodeInfo) -> str | None:
        """The client behind a node, if its key or an earlier answer tells."""
        if self._identity == "key" and node.public_key:
            self._client_of[node.node_id] = client_of_key(node.public_key)
        return self._client_of.get(node.node_id)

    def _may_enrol(self, node: NodeInfo) -> bool:
        client = self._known(node)
        if self._tries[node.node_id] >= _TRIES or client in self.members:
            return False
        if client is None:
            return self._identity == "partition-id"
        return self._places is None or client in self._places

    def _advice(self, grid: Grid) -> str:
        nodes = list(grid.get_nodes())
        if self._identity == "key" and nodes and not any(node.public_key for node in nodes):
            return (
                ". The nodes have no public keys: start the SuperLink with --enable-supernode-auth, or, in a "
                "simulation, say identity='partition-id'."
            )
        return (
            f"; {len(nodes)} nodes are there, and {len(self._refused)} did not enrol. The logs of those say why; of a "
            "node that never came the SuperLink's log says if it was refused."
        )


def client_of_key(public_key: bytes) -> str:
    """A client's name: the SHA-256 of its node's public key."""
    return hashlib.sha256(public_key).hexdigest()


def client_of_partition(partition: int) -> str:
    """A client's name in a simulation."""
    if partition < 0:
        raise InputError("it has no partition-id.")
    return f"partition-{partition:06d}"
