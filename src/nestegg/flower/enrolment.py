"""Enrolment: one question to every node, and who is in the federation from then on, present or not."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore import log

from nestegg.errors import InputError
from nestegg.files import write_atomically
from nestegg.flower import wire
from nestegg.flower.exchange import exchange
from nestegg.flower.terms import Terms
from nestegg.planning import Budget
from nestegg.schema import Section, read

IDENTITIES = ("key", "partition-id")
_PAUSE = 0.2  # seconds between looks at who is there


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

    def save(self, path: Path) -> None:
        """Write the roster, durably."""
        content = {"terms": self.terms, "members": [member.model_dump() for member in self.members]}
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

    A client is known by the SHA-256 of its node's public key, which the SuperLink has checked. In a simulation there
    are no keys, and a node's partition-id is believed.

    Args:
        terms: on offer.
        identity: key, or partition-id.
        places: the group of every client that may enrol; by default anybody may, and takes a group that fits.
    """

    def __init__(self, terms: Terms, identity: str, places: Mapping[str, str] | None = None) -> None:
        self._terms, self._identity, self._places = terms, identity, places
        self._asked: set[int] = set()
        self._refused = 0
        self._client_of: dict[int, str] = {}
        self.members: dict[str, Member] = {}

    def present(self, grid: Grid) -> dict[str, int]:
        """The node of every client that is there now."""
        if self._identity == "key":
            return {client_of_key(node.public_key): node.node_id for node in grid.get_nodes() if node.public_key}
        online = set(grid.get_node_ids())
        return {client: node for node, client in self._client_of.items() if node in online}

    def ask(self, grid: Grid, timeout: float) -> None:
        """Make the offer to every node that has not had it yet, and keep the answers."""
        messages, asked = [], {}
        for node in grid.get_nodes():
            client = self._known(node)
            if node.node_id in self._asked or client in self.members or not self._may_enrol(client):
                continue
            content = RecordDict(
                {wire.OFFER: wire.offer_to_record(self._terms, (self._places or {}).get(client or ""))}
            )
            messages.append(Message(content, node.node_id, wire.ENROL))
            asked[node.node_id] = client
        for reply in exchange(grid, messages, timeout):
            number = reply.metadata.reply_to_message_id
            node_id = next((m.metadata.dst_node_id for m in messages if m.metadata.message_id == number), None)
            if node_id is not None:
                self._asked.add(node_id)
                self._take(node_id, asked[node_id], reply)

    def fill(self, grid: Grid, timeout: float) -> Roster:
        """Ask until every place of the plan is taken.

        Raises:
            InputError: the time is over and some are not; the sentence says which.
        """
        end = time.monotonic() + timeout
        while True:
            self.ask(grid, max(end - time.monotonic(), _PAUSE))
            roster, missing = self._roster()
            if not missing:
                return roster
            if time.monotonic() >= end:
                raise InputError(f"enrolment is not complete after {timeout:g} s: {missing}{self._advice(grid)}")
            time.sleep(_PAUSE)

    def _take(self, node_id: int, client: str | None, reply: Message) -> None:
        try:
            if reply.has_error():
                raise InputError("it refused.")
            answer = wire.answer_of(reply.content)
            group = self._terms.row(answer.group).group
            if client is None:
                client = client_of_partition(answer.partition)
            if client in self.members:
                raise InputError(f"it says that it is {client}, who is enrolled.")
            if self._places is not None and self._places.get(client) != group.name:
                raise InputError(f"group {group.name!r} is not the one that was offered.")
            if answer.epsilon < group.budget.epsilon or answer.delta < group.budget.delta:
                raise InputError(f"its budget, {answer.epsilon:g}, does not cover group {group.name!r}.")
        except InputError as error:
            log(WARNING, "Node %d does not enrol: %s", node_id, error)
            self._refused += 1
            return
        self._client_of[node_id] = client
        self.members[client] = Member(client=client, group=group.name, epsilon=answer.epsilon, delta=answer.delta)

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
        if self._identity == "key":
            return client_of_key(node.public_key) if node.public_key else None
        return self._client_of.get(node.node_id)

    def _may_enrol(self, client: str | None) -> bool:
        if self._identity == "key" and client is None:
            return False
        return self._places is None or client is None or client in self._places

    def _advice(self, grid: Grid) -> str:
        nodes = list(grid.get_nodes())
        if self._identity == "key" and nodes and not any(node.public_key for node in nodes):
            return (
                ". The nodes have no public keys: start the SuperLink with --enable-supernode-auth, or, in a "
                "simulation, say identity='partition-id'."
            )
        return f"; {len(nodes)} nodes are there, and {self._refused} did not enrol. Their own logs say why."


def client_of_key(public_key: bytes) -> str:
    """A client's name: the SHA-256 of its node's public key."""
    return hashlib.sha256(public_key).hexdigest()


def client_of_partition(partition: int) -> str:
    """A client's name in a simulation."""
    if partition < 0:
        raise InputError("it has no partition-id.")
    return f"partition-{partition:06d}"
