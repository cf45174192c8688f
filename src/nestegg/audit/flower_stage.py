"""A plan on Flower in one process: its strategy, its client mod, and canaries whose updates are known beforehand."""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from nestegg.accounting import Array
from nestegg.audit.canaries import LOUD, QUIET, nameless
from nestegg.audit.claims import Claims
from nestegg.audit.trials import chosen
from nestegg.flower import Enrolling, PlannedStrategy, PrivacyMod, Sharing, wire
from nestegg.flower.enrolment import client_of_key
from nestegg.flower.in_process import FIRST_NODE, LocalGrid, identify, public_key
from nestegg.flower.mod import PARTITION
from nestegg.flower.terms import Order, Terms
from nestegg.ledger import Ledger

FLOWER = "flower"
ALL_REPLY, LOST, FAILING = "all reply", "replies are lost", "clients fail"
SECRET = "patient 4711"  # what the error of a failing client says
_CANARIES = 64
_LAYERS = 2  # of the model, where each is clipped by itself

Train = Callable[[int, ArrayRecord], ArrayRecord]  # of a client's number and the model


class Unpaid(PrivacyMod):
    """The mod as it is, but that it keeps no account: a round costs a guarded client tenths of a second."""

    def _admit(self, order: Order, context: Context) -> None:
        """Take part in everything."""


@dataclass(frozen=True, eq=False)
class Stage:
    """Who is who when a plan is carried out by Flower. The model has numbers of each canary, and of nobody.

    Attributes:
        claims: what is promised.
        canaries: clients whose update is as long as their clip norms allow; those of all others are zero.
        owner: the group of every client.
    """

    claims: Claims
    canaries: tuple[int, ...]
    owner: NDArray[np.int64]

    @classmethod
    def of(cls, claims: Claims, groups: Sequence[int]) -> Stage:
        """Return a stage with canaries of some groups."""
        return cls(claims, tuple(chosen(claims, groups, _CANARIES).tolist()), claims.owner)

    @property
    def sharing(self) -> Sharing:
        """The mechanics of the claims, as Flower calls them."""
        mechanics = self.claims.mechanics
        return Sharing(mechanics.clipping, mechanics.colluders, self.claims.units.tolist(), mechanics.side)

    @cached_property
    def terms(self) -> Terms:
        """What the federation agrees on."""
        return self.sharing.terms("audit", nameless(self.claims.plan))

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return _LAYERS if self.claims.mechanics.clipping == "per-layer" else 1

    @property
    def model(self) -> ArrayRecord:
        """The first model, all zero."""
        zeros = np.zeros(len(self.canaries) + QUIET, np.float32)
        return ArrayRecord({f"{layer}.weight": FlowerArray(zeros) for layer in range(self.layers)})

    @property
    def names(self) -> list[str]:
        """Clients as the strategy knows them."""
        return [client_of_key(public_key(client)) for client in range(len(self.owner))]

    def group(self, client: int) -> str:
        """The name of a client's group."""
        return self.claims.plan.groups[int(self.owner[client])].group.name

    def trained(self, client: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the model after a client's training: louder than every clip norm, along coordinates of its own."""
        if client not in self.canaries:
            return arrays
        moved = {name: array.numpy().copy() for name, array in arrays.items()}
        for values in moved.values():
            values[self.canaries.index(client)] += np.float32(LOUD * self.claims.norms.max())
        return ArrayRecord({name: FlowerArray(values) for name, values in moved.items()})

    def parts(self, vector: Array) -> tuple[Array, Array]:
        """Return a vector along the canaries' directions, and where nobody has one."""
        parts = vector[: self.layers * (len(self.canaries) + QUIET)].reshape(self.layers, -1)
        along = parts[:, : len(self.canaries)].sum(axis=0) / math.sqrt(self.layers)
        return along, parts[:, len(self.canaries) :].ravel()

    def app(self, train: Train, base: ClientApp | None = None) -> ClientApp:
        """Return a client app, by default without accounts, whose training is a function of client and model."""
        app = base or ClientApp(mods=[Unpaid()])

        @app.train()
        def go(message: Message, context: Context) -> Message:
            arrays = train(int(context.node_config[PARTITION]), wire.single_arrays(message.content))
            return Message(RecordDict({"arrays": arrays}), reply_to=message)

        return app

    def ask(self, app: ClientApp, client: int, t: int) -> Message:
        """Return what a client sends when it is asked to take part in a round."""
        identify()
        order = self.terms.order(self.group(client), t + 1)
        content = RecordDict({"arrays": self.model, "config": ConfigRecord(), wire.ORDER: wire.as_record(order)})
        return answer(app, Message(content, FIRST_NODE + client, MessageType.TRAIN), client)


class Nodes(LocalGrid):
    """All clients of a plan: they enrol without an account, and half of those asked may be lost, or fail.

    Attributes:
        kind: what happens in the next round.
        drawn: who was asked since somebody cleared it.
        counted: whose replies arrived since then.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.app(self._train), len(stage.owner), fault=self._arriving)
        self.stage, self.kind = stage, ALL_REPLY
        self.drawn: set[int] = set()
        self.counted: set[int] = set()

    def answers(self, message: Message) -> list[Message]:
        """Return what arrives in answer to a message."""
        client = self.online[message.metadata.dst_node_id]
        if message.metadata.message_type != wire.ENROL:
            self.drawn.add(client)
            return super().answers(message)
        group = self.stage.claims.plan.groups[self.stage.owner[client]].group
        budget = group.budget
        told = wire.Answer(epsilon=budget.epsilon, delta=budget.delta, group=group.name, partition=client)
        return [Message(RecordDict({wire.ANSWER: wire.as_record(told)}), reply_to=message)]

    def _train(self, client: int, arrays: ArrayRecord) -> ArrayRecord:
        if self.kind == FAILING and client % 2:
            raise RuntimeError(SECRET)
        return self.stage.trained(client, arrays)

    def _arriving(self, client: int, question: Message, reply: Message) -> list[Message]:
        if self.kind == LOST and client % 2:
            return [] if client % 4 == 1 else [Message(Error(2, "lost"), reply_to=question)]
        if not reply.has_error():
            self.counted.add(client)
        return [reply]


class _Enough(Exception):  # noqa: N818, nothing went wrong
    """Ends a run that has told enough."""


def perform(stage: Stage, nodes: Nodes, watch: Callable[[Path, int, Array, float], bool]) -> None:
    """Carry the plan out, round by round.

    Args:
        stage: who is who.
        nodes: the clients.
        watch: told the ledger's file, the rounds that are done, the model and the next clip norm; whether to go on.
    """
    with tempfile.TemporaryDirectory(prefix="nestegg-audit-") as place, silence():
        folder = Path(place) / "run"
        roster = dict(zip(stage.names, map(stage.group, range(len(stage.owner))), strict=True))

        def told(round_: int, arrays: ArrayRecord) -> None:
            vector = np.concatenate([array.numpy().ravel() for array in arrays.values()]).astype(np.float64)
            if not watch(folder / "private" / "ledger.db", round_, vector, strategy.clip_norm):
                raise _Enough

        strategy = PlannedStrategy(
            nameless(stage.claims.plan), folder, sharing=stage.sharing, enrolling=Enrolling(roster)
        )
        try:
            strategy.start(nodes, stage.model, timeout=0.0, evaluate_fn=told)
        except _Enough:
            return


def withdraw(stage: Stage, ledger: Path, clients: Sequence[int]) -> None:
    """Let clients withdraw from a run that goes on."""
    names = stage.names
    with Ledger(ledger) as books:
        for client in clients:
            books.withdraw(names[client], "an audit")


def answer(app: ClientApp, message: Message, client: int) -> Message:
    """Return what an app answers at a client's node."""
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, Context(1, FIRST_NODE + client, {PARTITION: client}, RecordDict(), {}))


@contextmanager
def silence() -> Iterator[None]:
    """Keep Flower's log of rounds that are none away from the user."""
    logger = logging.getLogger("flwr")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
