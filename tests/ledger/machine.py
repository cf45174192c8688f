"""All that can be done to a ledger, by two processes that die anywhere, beside the model of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sqlalchemy import create_engine, text

from nestegg import Budget, Group, InputError, Plan, VerificationError, plan
from nestegg.ledger import Ledger, RunBooks
from nestegg.ledger.database import checked_url
from nestegg.ledger.log import Position
from tests.ledger.deaths import Death, Fuse
from tests.ledger.model import NEAR, Model, any_of, prices

NAMES = ("ada", "bob", "cleo", "dan", "eve")
RUNS = ("monday", "tuesday", "wednesday", "friday")
ROUNDS = 3
EPSILONS = (0.5, 4.0, 7.0, 12.0)
PAIRS = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1])
ACCOUNTS = st.sampled_from(("renyi", "gaussian", "fixed"))
MOMENTS = st.one_of(
    st.none(), st.integers(1, 12), st.integers(1, 24)
)  # the statement or commit at which a process dies
PROCESSES = st.sampled_from((0, 1))


@cache
def planned(rate: float, epsilon: float) -> Plan:
    """A plan for two clients in groups of their own."""
    groups = [Group("strict", 1, Budget(epsilon)), Group("open", 1, Budget(2 * epsilon))]
    return plan(groups, ROUNDS, method="idp-fedavg", spending_rate=rate, clip_norm=1.0)


PLANS = st.builds(planned, st.sampled_from((1.0, 0.5)), st.sampled_from((1.0, 2.0)))


class Process:
    """A server: its ledger, the books it has open, its claims, and its own copy of every run's checkpoint."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.disk: dict[str, tuple[list[str], Plan]] = {}
        self.start()

    def start(self) -> None:
        self.ledger = Ledger(self.url)
        self.books: dict[str, RunBooks] = {}
        self.claims: dict[str, tuple[int, str]] = {}

    def restart(self) -> None:
        """Come back after death, with what is on disk."""
        self.ledger.close()
        self.start()


class LedgerMachine(RuleBasedStateMachine):
    """All that can be done to a ledger; whoever is refused leaves no trace, and whoever dies leaves all or nothing."""

    def __init__(self, url: str, fuse: Fuse) -> None:
        super().__init__()
        empty(url)
        self.fuse, self.model, self.made = fuse, Model(), 0
        self.processes, self.auditor = [Process(url), Process(url)], Ledger(url)
        self.checked: Position | None = None

    def teardown(self) -> None:
        for process in self.processes:
            process.ledger.close()
        self.auditor.close()

    @initialize(account=ACCOUNTS, epsilons=st.lists(st.sampled_from(EPSILONS[1:]), min_size=4, max_size=4), made=PLANS)
    def two_runs(self, account: str, epsilons: list[float], made: Plan) -> None:
        given = {name: Budget(epsilon) for name, epsilon in zip(NAMES, epsilons, strict=False)}
        self.set_budgets(0, given, account, None, True, None)
        for run, members in ((RUNS[0], NAMES[:2]), (RUNS[1], NAMES[1:3])):
            self.begin(0, run, members, made, False, None)

    def attempt(
        self,
        process: Process,
        act: Callable[[], Any],
        *,
        refused: bool | None,
        apply: Callable[[], None],
        dies: int | None,
    ) -> Any:
        """Do something that is one transaction, and apply to the model what came of it."""
        try:
            with self.fuse.lit(dies):
                result = act()
        except Death:
            process.restart()
            if self.fuse.committed:
                assert refused is not True
                apply()
            return None
        except InputError:
            if refused is False or self.fuse.committed:
                raise
            return None
        assert refused is not True
        apply()
        return result

    @rule(
        process=PROCESSES,
        given=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(EPSILONS).map(Budget), min_size=1, max_size=3),
        account=st.one_of(st.none(), ACCOUNTS),
        reason=st.sampled_from(("her wish", "a second study", None)),
        new=st.sampled_from((True, True, False)),
        dies=MOMENTS,
    )
    def set_budgets(
        self,
        process: int,
        given: dict[str, Budget],
        account: str | None,
        reason: str | None,
        new: bool,
        dies: int | None,
    ) -> None:
        at = self.processes[process]
        self.attempt(
            at,
            lambda: at.ledger.set_budgets(given, rule=account, reason=reason, new=new),
            refused=self.model.budgets_refused(given, account, reason, new),
            apply=lambda: self.model.set_budgets(given, account),
            dies=dies,
        )

    @precondition(lambda self: sum(life.withdrawn for life in self.model.lives.values()) < 2)
    @rule(process=PROCESSES, client=st.sampled_from(NAMES), dies=MOMENTS)
    def withdraw(self, process: int, client: str, dies: int | None) -> None:
        at, life = self.processes[process], self.model.lives.get(client)

        def apply() -> None:
            self.model.lives[client].withdrawn = True

        refused = life is None or life.withdrawn
        self.attempt(at, lambda: at.ledger.withdraw(client, "enough"), refused=refused, apply=apply, dies=dies)

    @rule(
        process=PROCESSES,
        run=st.sampled_from(RUNS),
        members=PAIRS,
        made=PLANS,
        brings=st.booleans(),
        dies=MOMENTS,
    )
    def begin(
        self, process: int, run: str, members: tuple[str, ...], made: Plan, brings: bool, dies: int | None
    ) -> None:
        at, brought = self.processes[process], Budget(6.0)
        unknown = [brought] * 2 if brings else None
        self.attempt(
            at,
            lambda: at.ledger.begin(run, made, members, unknown=unknown, rule="renyi"),
            refused=self.model.begin_refused(run, members, brings),
            apply=lambda: self.model.begin(run, made, members, brought),
            dies=dies,
        )

    def opened(self, at: Process, run: str) -> RunBooks:
        """The books a process has open, perhaps for long; other processes go on meanwhile."""
        if run not in at.books:
            at.books[run] = at.ledger.books(run)
        at.disk.setdefault(run, ([], self.model.runs[run].plan))
        return at.books[run]

    def begun(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model.runs)))

    @precondition(lambda self: self.model.runs)
    @rule(data=st.data(), process=PROCESSES, rounds=st.integers(1, ROUNDS), dies=st.tuples(st.integers(0, 6), MOMENTS))
    def work(self, data: st.DataObject, process: int, rounds: int, dies: tuple[int, int | None]) -> None:
        """Resume a run and train some rounds, as a server does; it may die at any statement of any step."""
        at, run = self.processes[process], self.begun(data)
        moments = iter([*[None] * dies[0], dies[1], *[None] * 2 * ROUNDS])
        self.reconciled(at, run, next(moments))
        for _ in range(rounds):
            if run not in at.books or not self.reserved(at, run, 0, next(moments)):
                return
            self.released(at, run, next(moments))

    @precondition(lambda self: self.model.runs)
    @rule(data=st.data(), process=PROCESSES, skip=st.sampled_from((0, 0, 1, -1)), dies=MOMENTS)
    def reserve(self, data: st.DataObject, process: int, skip: int, dies: int | None) -> None:
        """Reserve a round, also one that is not the next, by books that may be old."""
        self.reserved(self.processes[process], self.begun(data), skip, dies)

    @precondition(lambda self: any(process.claims for process in self.processes))
    @rule(data=st.data(), dies=MOMENTS)
    def release(self, data: st.DataObject, dies: int | None) -> None:
        """Release a round, perhaps late and with a claim that is void by now."""
        at = data.draw(st.sampled_from([process for process in self.processes if process.claims]))
        self.released(at, data.draw(st.sampled_from(sorted(at.claims))), dies)

    @precondition(lambda self: self.model.runs)
    @rule(data=st.data(), process=PROCESSES)
    def overtake(self, data: st.DataObject, process: int) -> None:
        """Let a copy of a run claim the round that the run has claimed: only one result of a round can be released."""
        first, second = self.processes[process], self.processes[1 - process]
        run = self.begun(data)
        self.reconciled(first, run, None)
        if self.reserved(first, run, 0, None):
            second.disk[run] = list(first.disk[run][0]), first.disk[run][1]
            self.reconciled(second, run, None)
            self.reserved(second, run, 0, None)
            self.released(first, run, None)
            self.released(second, run, None)

    def reserved(self, at: Process, run: str, skip: int, dies: int | None) -> bool:
        books, known = self.opened(at, run), self.model.runs[run]
        round_ = len(at.disk[run][0]) + 1 + skip
        refused = self.model.reserve_refused(run, books.plan, round_)
        apply = partial(self.model.reserve, run, round_)
        claim = self.attempt(at, lambda: books.reserve(round_), refused=refused, apply=apply, dies=dies)
        if self.fuse.committed:
            known.claim = claim or "held by the dead"
        if claim is None:
            return False
        at.claims[run] = round_, claim
        gone = [self.model.lives[member].withdrawn for member in known.members]
        assert books.withdrawn() == {place for place, left in enumerate(gone) if left}
        return True

    def released(self, at: Process, run: str, dies: int | None) -> None:
        """Write the checkpoint of the round that was claimed, if the one before is there, and release it."""
        books, known, (round_, claim) = self.opened(at, run), self.model.runs[run], at.claims[run]
        results, _ = at.disk[run]
        if len(results) == round_ - 1:
            self.made += 1
            results.append(f"result {self.made}")
            at.disk[run] = results, books.plan
        if len(results) == round_:
            valid = known.is_open and round_ == len(known.results) + 1 and claim == known.claim
            act, apply = (
                partial(books.release, round_, claim, results[-1]),
                partial(self.model.release, run, results[-1]),
            )
            self.attempt(at, act, refused=not valid, apply=apply, dies=dies)

    def reconciled(self, at: Process, run: str, dies: int | None) -> None:
        """Open a run again and bring the log and this process's checkpoint into agreement."""
        at.books.pop(run, None)
        at.claims.pop(run, None)
        books = self.opened(at, run)
        results, made = at.disk[run]
        refused = self.model.reconcile_refused(run, results)
        apply = partial(self.model.reconcile, run, list(results), made)
        self.attempt(at, lambda: books.reconcile(list(results), made), refused=refused, apply=apply, dies=dies)

    @precondition(lambda self: self.model.runs)
    @rule(data=st.data(), process=PROCESSES, dies=MOMENTS)
    def replan(self, data: st.DataObject, process: int, dies: int | None) -> None:
        self.planned_anew(self.processes[process], self.begun(data), dies)

    def planned_anew(self, at: Process, run: str, dies: int | None) -> None:
        books, known = self.opened(at, run), self.model.runs[run]
        impossible = books.plan.digest != known.plan.digest or len(known.paid) >= ROUNDS

        def apply() -> None:
            made, paid = self.auditor.books(run).plan, len(known.paid)
            for round_ in range(1, paid + 1):
                assert prices(made, round_) == prices(known.plan, round_)  # what is paid stays as it was
            known.plans.append(made)
            assert self.model.rounds_refused(run, ROUNDS) is not True  # everybody can afford the rest

        # Where nothing is left to spend, no noise is enough: only the ledger can say.
        done = self.attempt(at, books.replan, refused=True if impossible else None, apply=apply, dies=dies)
        if done is not None:
            books.check_rest()

    @precondition(lambda self: any(process.disk for process in self.processes))
    @rule(data=st.data(), what=st.sampled_from(("set back", "copied", "ahead")), then=st.booleans())
    def disturb(self, data: st.DataObject, what: str, then: bool) -> None:
        """Set a checkpoint back, copy it to the other process, or have a round that the ledger has forgotten."""
        at = data.draw(st.sampled_from([process for process in self.processes if process.disk]))
        run = data.draw(st.sampled_from(sorted(at.disk)))
        results, made = at.disk[run]
        if what == "copied":
            other = self.processes[1 - self.processes.index(at)]
            other.disk[run] = list(results), made
        elif what == "set back":
            at.disk[run] = results[: data.draw(st.integers(0, len(results)))], made
        elif len(results) < ROUNDS:
            self.made += 1
            at.disk[run] = [*results, f"result {self.made}"], made
        if then:
            self.reconciled(at, run, None)

    @invariant()
    def ledger_is_model(self) -> None:
        """Nobody is over budget, the log holds, and every account and run is what the model says."""
        position = self.checked_position()
        if position == self.checked:  # who was refused, or died too early, left no trace
            return
        self.checked = position
        found = dict(self.auditor.clients())
        assert set(found) == set(self.model.lives)
        for name, life in self.model.lives.items():
            account = found[name]
            charged = Counter({(q, sigma): n for q, sigma, n in account.charges})
            assert (account.budget, account.withdrawn, charged) == (life.budget, life.withdrawn, life.charges)
            assert (account.rule.name, account.rule.order) == (life.rule, life.order)
            assert account.epsilon == pytest.approx(life.epsilon(), rel=NEAR, abs=NEAR)
        one = NAMES[position.entry % len(NAMES)]
        if one in found:  # by a join of its own rows, not by the log
            assert Counter(self.auditor.account(one).charges) == Counter(found[one].charges)
        states = {state.name: state for state in self.auditor.history().runs.values()}
        assert set(states) == set(self.model.runs)
        for name, run in self.model.runs.items():
            state = states[name]
            assert (list(state.results.values()), state.lost) == (run.results, run.lost)
            assert (state.claim is not None, state.plans) == (run.is_open, [one.digest for one in run.plans])

    def checked_position(self) -> Position:
        """Where the log ends. Only rounds that a ledger had forgotten may go over budget: spent is spent."""
        over = {name: life.breaks() for name, life in self.model.lives.items()}
        assert {name for name, said in over.items() if said} <= self.model.forced
        try:
            position, _ = self.auditor.verify()
        except VerificationError as error:
            if any_of([*over.values()]) is False or "is over budget" not in str(error):
                raise
            return self.auditor.history().position
        assert True not in over.values()
        return position


def empty(url: str) -> None:
    """A database without tables."""
    if url.startswith("sqlite"):
        file = Path(url.removeprefix("sqlite:///"))
        for path in file.parent.glob(f"{file.name}*"):
            path.unlink()
        return
    engine = create_engine(checked_url(url))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
