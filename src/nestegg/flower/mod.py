"""The client's part of a round, whatever its training code is: guard, train, subtract, clip, add noise (ClientUpdate).

Nothing else leaves: no model, no metrics, no message of an error. What goes wrong is logged here, with the step at
which it did, and sent as one word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging import INFO, WARNING
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.supercore import log
from numpy.typing import NDArray
from torch import Tensor

from nestegg.errors import InputError, VerificationError
from nestegg.flower import wire
from nestegg.flower.arrays import ArrayLayout
from nestegg.flower.guard import Guard, OwnAccount
from nestegg.flower.terms import Order
from nestegg.mechanism import Lattice, clipped
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.mechanism.side import side_points
from nestegg.planning import Budget
from nestegg.training.side import statistics_of

PARTITION = "partition-id"

AccountOf = Callable[[Context], OwnAccount]
NoiseOf = Callable[[Context, int], np.random.Generator]


def account_of_node(context: Context) -> OwnAccount:
    """The account in `flower-supernode --node-config`: account="…", and epsilon and delta unless a file has them."""
    config = context.node_config
    if "account" not in config:
        raise InputError("node-config has no account: it must name the folder in which this client keeps its account.")
    folder = Path(str(config["account"]))
    if "epsilon" not in config:
        try:
            return OwnAccount.of_folder(folder)
        except InputError as error:
            raise InputError(f"node-config has no epsilon, and {error}") from None
    return OwnAccount(folder, Budget(config["epsilon"], config.get("delta", 1e-5)))  # type: ignore[arg-type] # checked


def secret_noise(context: Context, round_: int) -> np.random.Generator:
    """Noise under a fresh key of the operating system."""
    return Randomness(seed=0, reproducible=False).stream(Purpose.NOISE)


class PrivacyMod:
    """A Flower mod that makes a client private. It must be the first of an app's mods: the last to see what leaves.

    Args:
        account: finds a client's account; by default from its node-config.
        noise: of a client and a round. Anything but the default is for experiments: noise that somebody else can
            compute hides nothing, so such a client enrols only in runs whose terms say "not for release".
    """

    def __init__(self, account: AccountOf = account_of_node, noise: NoiseOf = secret_noise) -> None:
        self._account, self._noise = account, noise

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message; whatever is neither an enrolment nor a round of training is refused."""
        kind = message.metadata.message_type
        try:
            if kind == wire.ENROL:
                with _step("enrolment", may_refuse=True):
                    return self._enrol(message, context)
            if kind != MessageType.TRAIN:
                raise _NoAnswerError(wire.REFUSED, f"messages of type {kind!r} are not answered.")
            return self._train(message, context, call_next)
        except _NoAnswerError as end:
            log(WARNING, "nestegg has %s: %s", end.word, end)
            return wire.error(end.word, message)

    def _enrol(self, message: Message, context: Context) -> Message:
        terms, group = wire.offer_of(message.content)
        if self._noise is not secret_noise and terms.note is None:
            raise InputError(f"run {terms.run!r} may be released, and this client's noise is not secret.")
        account = self._account(context)
        group = Guard(account).enrol(terms, group)
        log(INFO, "nestegg: enrolled in run %s, group %s, terms %s", terms.run, group, terms.digest)
        partition = context.node_config.get(PARTITION, -1)
        number = partition if isinstance(partition, int) else -1
        answer = wire.Answer(epsilon=account.budget.epsilon, delta=account.budget.delta, group=group, partition=number)
        return Message(RecordDict({wire.ANSWER: wire.as_record(answer)}), reply_to=message)

    def _train(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        with _step("reading the order", may_refuse=True):
            order = wire.order_of(message.content)
            arrays = wire.single_arrays(message.content)
            layout = ArrayLayout.of(arrays)
            before = layout.flatten(arrays)  # a copy: training code may change what it was given
        with _step(f"round {order.round}, paying from this client's account", may_refuse=True):
            self._admit(order, context)
        with _step(f"round {order.round}, training"):
            del message.content[wire.ORDER]
            reply = call_next(message, context)
            if reply.has_error():
                raise RuntimeError(f"it replied with error {reply.error.code}: {reply.error.reason}")
        with _step(f"round {order.round}, reading what training returned"):
            update = layout.flatten(wire.single_arrays(reply.content)).sub_(before)
            held = wire.held_back(reply.content)
        with _step(f"round {order.round}, clipping and adding noise"):
            points = self._protected(update, held, layout, order, context)
        content = RecordDict({wire.UPDATE: ArrayRecord({wire.UPDATE: Array(points)})})
        return Message(content, reply_to=message)

    def _admit(self, order: Order, context: Context) -> None:
        """Pay for a round from the client's own account, or refuse it."""
        Guard(self._account(context)).admit(order)

    def _protected(
        self, update: Tensor, held: tuple[float, float], layout: ArrayLayout, order: Order, context: Context
    ) -> NDArray[np.int32]:
        """Clip an update and add this client's share of noise: what leaves are points of the round's lattice."""
        layers = layout.layers if order.clipping == "per-layer" else None
        points, length = clipped(update, order.clip_norm, layers, order.step)
        if not math.isfinite(length):
            raise InputError("the update is not finite.")
        values = statistics_of(order.statistics, held, is_below=length <= order.clip_norm, largest=order.largest_loss)
        values *= float(length > 0.0)  # who has no data says nothing
        all_points = np.concatenate([points.numpy(), side_points(values, np.array(order.lengths), order.step)])
        noise = Lattice(order.step).noise(order.noise_std, 1, len(all_points), self._noise(context, order.round))
        return (all_points + noise).astype(np.int32)  # at most 2^27 steps each, by the lattice's definition


def private_client_app(
    account: AccountOf = account_of_node, *, mods: Sequence[Mod] = (), noise: NoiseOf = secret_noise
) -> ClientApp:
    """A `ClientApp` whose clients are private: register a train function with it, as with any other.

    Args:
        account: see `PrivacyMod`.
        mods: further mods; they see messages as the training code does.
        noise: see `PrivacyMod`.
    """
    app = ClientApp(mods=[PrivacyMod(account, noise), *mods])
    action = wire.ENROL.partition(".")[2]

    @app.query(action)
    def enrol(message: Message, context: Context) -> Message:
        raise AssertionError("the mod answers enrolments itself")

    return app


class _NoAnswerError(Exception):
    """Why a message gets no answer, for this client's own log; the word is all that leaves."""

    def __init__(self, word: str, sentence: str) -> None:
        super().__init__(sentence)
        self.word = word


@contextmanager
def _step(name: str, *, may_refuse: bool = False) -> Iterator[None]:
    """Let whatever goes wrong say at which step it did.

    Only before training is it a refusal. Afterwards it may depend on data, and so has another word: servers count
    refusals, and may tell that all have refused.
    """
    try:
        yield
    except (InputError, VerificationError) as error:
        raise _NoAnswerError(wire.REFUSED if may_refuse else wire.FAILED, f"{name}: {error}") from None
    except Exception as error:  # the traceback of training code can hold data: it stays here
        raise _NoAnswerError(wire.FAILED, f"{name}: {type(error).__name__}: {error}") from None
