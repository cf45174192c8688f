"""A Flower strategy that carries a plan: Algorithm 2 with real messages, real dropouts and a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from logging import INFO
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from nestegg.checks import whole
from nestegg.errors import InputError
from nestegg.flower import wire
from nestegg.flower.accountant import GroupAccountant
from nestegg.flower.aggregation import NoisySum
from nestegg.flower.enrolment import Enrolling
from nestegg.flower.exchange import exchange
from nestegg.flower.session import OpenRound, Session
from nestegg.flower.steps import step
from nestegg.flower.terms import Sharing, Terms, check_method
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.planning import Plan
from nestegg.release import stamp


class PlannedStrategy(Strategy):
    """Trains by a nestegg plan. Clients must use `private_client_app`, or `PrivacyMod`.

    All state is in a folder, outside Flower: whatever is killed, the same strategy on the same folder goes on where the
    last released round ended.

    Args:
        plan: for a fixed number of clients in groups.
        folder: of this run; made if it is not there.
        ledger: URL of the ledger that pays, by default one in the folder.
        sharing: how updates are clipped, and how clients share the noise.
        enrolling: how nodes become clients.
        randomness: of cohorts and noise; anything but the default is for experiments, not for release.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path | str,
        *,
        ledger: str | None = None,
        sharing: Sharing | None = None,
        enrolling: Enrolling | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        check_method(plan)
        self.plan = plan
        self._folder, self._ledger = Path(folder), ledger
        self._sharing, self._enrolling = sharing or Sharing(), enrolling or Enrolling()
        self._randomness = randomness or Randomness(seed=0, reproducible=False)
        self._session: Session | None = None
        self._open: OpenRound | None = None

    @property
    def clip_norm(self) -> float:
        """C of the next round, in the unit of the plan."""
        return self._running.learnt_norm or self.plan.clip_norm

    def accountants(self) -> dict[str, GroupAccountant]:
        """What the clients of every group have spent, as Flower's accountants; where they differ, the tightest."""
        accounts = self._running.books.accounts()
        rows = {row.group.name: row for row in self.plan.groups}
        return {
            name: GroupAccountant.of(rows[name], self.plan.clients, account.charges)
            for name, account in accounts.items()
        }

    def summary(self) -> None:
        """Log what will be done."""
        plan = self.plan
        log(
            INFO, "\t├──> Plan: %s (%s), %d clients, %d rounds", plan.method, plan.accountant, plan.clients, plan.rounds
        )
        log(INFO, "\t│\t└──Digest: %s", plan.digest)
        log(INFO, "\t├──> Groups:")
        for row in plan.groups:
            budget = row.group.budget
            log(
                INFO,
                "\t│\t├──%s: %d clients, ε = %g at δ = %g, planned to spend %.4g",
                row.group.name,
                row.group.clients,
                budget.epsilon,
                budget.delta,
                row.epsilon_spent[-1],
            )
        log(INFO, "\t└──> State: %s", self._folder)
        if self._randomness.reproducible:
            log(INFO, "\t     Cohorts and noise follow from a seed: this run is NOT FOR RELEASE.")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Enrol, and train the rounds that are left.

        Args:
            grid: of the ServerApp.
            initial_arrays: the model before the first round; a checkpoint takes its place.
            num_rounds: the last round to run now; by default the plan's last.
            timeout: seconds to wait for the clients of a round; who is later counts as lost.
            train_config: sent to clients with every round.
            evaluate_config: not used: what clients measure on their data never leaves them.
            evaluate_fn: measures the model after every round, on public data.
        """
        with ExitStack() as stack:
            with step("opening the run"):
                last = whole("num_rounds", self.plan.rounds if num_rounds is None else num_rounds, 1, self.plan.rounds)
                log(INFO, "Starting %s:", type(self).__name__)
                self.summary()
                begun = Session.begin(self._folder, self._offer, ledger=self._ledger, initial_arrays=initial_arrays)
                session = self._session = stack.enter_context(begun)
            with step("enrolment"):
                session.enrol(grid, self._enrolling)
            with step("opening the ledger"):
                session.open_books()
                session.check_rest()
            return self._train(grid, last, timeout, train_config or ConfigRecord(), evaluate_fn)

    def _offer(self, run: str) -> Terms:
        """The terms of a run."""
        return self._sharing.terms(run, self.plan, note=stamp(self._randomness.reproducible).get("note"))

    def _train(
        self,
        grid: Grid,
        last: int,
        timeout: float,
        config: ConfigRecord,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    ) -> Result:
        session, result = self._running, Result()
        late: dict[str, float] = {}

        def evaluate(round_: int) -> MetricRecord | None:
            with step(f"round {round_}, evaluate_fn"):
                found = None if evaluate_fn is None else evaluate_fn(round_, session.arrays)
            if found is not None:
                result.evaluate_metrics_serverapp[round_] = found
            return found

        result.arrays = session.arrays
        evaluate(session.done)
        for round_ in range(session.done + 1, last + 1):
            log(INFO, "[ROUND %d/%d]", round_, self.plan.rounds)
            with step(f"round {round_}, enrolment of nodes that are back, or late"):
                session.enrolment.step(grid)
            messages = self.configure_train(round_, session.arrays, config, grid)
            arrays, metrics = self._aggregate(round_, exchange(grid, messages, timeout, late))
            result.arrays, result.train_metrics_clientapp[round_] = arrays, metrics
            log(INFO, "\t└──> Spent: %s", _shown(metrics))
            if (found := evaluate(round_)) is not None:
                log(INFO, "\t└──> Evaluation: %s", _shown(found))
        with step("writing the model"):
            session.finish()
        accounts = session.books.accounts()
        for name in (row.group.name for row in self.plan.groups):
            log(INFO, "%s: ε = %.4f of %g spent", name, accounts[name].epsilon, accounts[name].budget.epsilon)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Pay for a round, draw its cohort, and make out an order to everybody in it (Algorithm 2, lines 4 and 5).

        Every client is drawn by itself with its own rate, present or not. An empty cohort is valid.
        """
        session = self._running
        with step(f"round {server_round}, paying for it in the ledger"):
            session.reserve(server_round)
        with step(f"round {server_round}, making out orders"):
            return self._orders(server_round, arrays, config, grid)

    def _orders(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> list[Message]:
        """Draw a cohort, and make out its orders."""
        session = self._running
        config["server-round"] = server_round
        self._open = OpenRound(server_round, {})
        present, messages = session.enrolment.present(grid), []
        for client in self._cohort(server_round):
            member = session.roster.members[client]
            order = session.terms.order(member.group, server_round, session.learnt_norm)
            if member.client not in present:
                continue  # it counts as lost, which is nobody's business
            content = RecordDict({"arrays": arrays, "config": config, wire.ORDER: wire.as_record(order)})
            message = Message(content, present[member.client], MessageType.TRAIN)
            messages.append(message)
            self._open.sent[client] = (message.metadata, order)
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """As `_aggregate`, for callers who know replies by what they say of themselves; `start` does not."""
        return self._aggregate(server_round, ((reply.metadata.reply_to_message_id, reply) for reply in replies))

    def _aggregate(self, server_round: int, replies: Iterable[tuple[str, Message]]) -> tuple[ArrayRecord, MetricRecord]:
        """Sum, add the missing shares, divide by q^t N, save, release (Algorithm 2, lines 8 and 9).

        Args:
            server_round: the round that was configured.
            replies: with the numbers of the messages they answer.
        """
        session, opened = self._running, self._open
        if opened is None or opened.round != server_round:
            raise InputError(f"round {server_round} was not configured.")
        terms, size, learnt = session.terms, session.layout.size, session.learnt_norm
        total = NoisySum(terms, server_round, size + len(terms.side.shares), learnt)
        with step(f"round {server_round}, sending orders and reading replies"):
            self._collect(opened, replies, total)
            session.refusals.check(session.books.withdrawn())
        with step(f"round {server_round}, adding noise"):
            summed = total.finish(self._randomness)
            update = (summed[:size] / terms.expected(server_round)).float()
        self._open = None
        with step(f"round {server_round}, saving and releasing it"):
            metrics = session.release(update, terms.said(server_round, summed[size:].numpy(), learnt))
        return session.arrays, MetricRecord(dict(metrics))

    def _collect(self, opened: OpenRound, replies: Iterable[tuple[str, Message]], total: NoisySum) -> None:
        """Add up the replies of a round. Who was asked, and did not answer well, is a secret: it is not logged."""
        clients = None
        for number, reply in replies:
            clients = clients or opened.clients()  # messages get their numbers when they are sent
            client = clients.get(number)
            if client is None:
                continue
            if wire.is_refusal(reply):
                self._running.note_refusal(client)
            with suppress(InputError):
                total.add(client, opened.sent[client][1], reply)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Nobody is asked: what clients measure on their data would leave them without noise."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """There is nothing to aggregate."""

    def _cohort(self, round_: int) -> list[int]:
        rates = {row.group.name: row.sampling_rate[round_ - 1] for row in self.plan.groups}
        own = np.array([rates[member.group] for member in self._running.roster.members])
        draws, absent = (
            self._randomness.stream(Purpose.COHORT, round_).random(len(own)),
            self._running.books.withdrawn(),
        )
        return [int(client) for client in np.flatnonzero(draws < own) if int(client) not in absent]

    @property
    def _running(self) -> Session:
        if self._session is None:
            raise InputError("the strategy has not been started.")
        return self._session


def _shown(metrics: MetricRecord) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in metrics.items()
    )
