"""The privacy ledger: what every client may spend in its life, and what it has spent, over all runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, func, select

from nestegg.errors import InputError, VerificationError
from nestegg.ledger.accounts import Account, client_account, peer_account
from nestegg.ledger.books import RunBooks
from nestegg.ledger.database import Database, copy_to_file
from nestegg.ledger.enrolment import check_run, client_numbers, without_budget, write_budgets, write_run
from nestegg.ledger.history import History
from nestegg.ledger.log import Entry, Position
from nestegg.ledger.peers import Peers, each_client, find_peers
from nestegg.ledger.plans import load_stored_plan, store_plan
from nestegg.ledger.tables import budgets, charges, clients, entries, groups, members, runs
from nestegg.planning import Budget, Plan


class Ledger:
    """A ledger in a file or at a URL, created if it is not there.

    >>> import tempfile, nestegg
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(f"sqlite:///{folder}/ledger.db") as ledger:
    ...     ledger.set_budgets({"ada": Budget(10.0), "bob": Budget(20.0)})
    ...     plan = nestegg.plan([nestegg.Group("all", 2, Budget(8.0))], rounds=20)
    ...     books = ledger.begin("monday", plan, ["ada", "bob"])
    ...     claim = books.reserve(1)  # on disk before any client works
    ...     books.release(1, claim, result="digest of the checkpoint")
    ...     print(f"{ledger.account('ada').epsilon:.3f} of {ledger.account('ada').budget.epsilon:g}")
    1.523 of 10
    """

    def __init__(self, where: str | Path, read_only: bool = False) -> None:
        self._database = Database(where, read_only)
        self.place = self._database.place

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def set_budgets(self, given: Mapping[str, Budget]) -> None:
        """Give clients a lifetime budget, or another one; new clients become known.

        Raises:
            InputError: a client has spent more than that already. Nobody's budget is changed.
        """
        with self._database.writing() as connection:
            numbers = client_numbers(connection, given)
            self._check_spent(connection, given, numbers)
            write_budgets(connection, [(numbers[name], name, budget) for name, budget in given.items()])

    def begin(
        self, name: str, plan: Plan, members_: Sequence[str], unknown: Sequence[Budget] | None = None
    ) -> RunBooks:
        """Begin a run: keep its plan, and who is in which group.

        Args:
            name: of the run, unique.
            plan: what it will spend.
            members_: the clients, in the order of the plan's groups.
            unknown: lifetime budgets for those of them whom the ledger does not know; by default they are an error.

        Raises:
            InputError: the run exists, or the plan and its members do not fit.
        """
        check_run(name, plan, members_)
        with self._database.writing() as connection:
            if connection.execute(select(runs.c.run).where(runs.c.name == name)).first():
                raise InputError(f"run {name!r} is in the ledger already.")
            numbers = client_numbers(connection, members_)
            write_budgets(connection, without_budget(connection, members_, unknown, numbers))
            store_plan(connection, plan)
            write_run(connection, name, plan, [numbers[member] for member in members_], members_)
        return RunBooks(self._database, name)

    def has_run(self, name: str) -> bool:
        """Whether a run has begun."""
        with self._database.reading() as connection:
            return connection.execute(select(runs.c.run).where(runs.c.name == name)).first() is not None

    def books(self, name: str) -> RunBooks:
        """The books of a run that has begun."""
        return RunBooks(self._database, name)

    def plan(self, digest: str) -> Plan:
        """The plan of a digest, as some run has it or had it."""
        with self._database.reading() as connection:
            return load_stored_plan(connection, digest, self.place)

    def account(self, client: str) -> Account:
        """A client's account, by a join: it does not read the whole log."""
        with self._database.reading() as connection:
            return client_account(connection, client, self.place)

    def accounts(self) -> list[Account]:
        """The accounts of all peers."""
        with self._database.reading() as connection:
            history = self._history(connection)
            return [peer_account(history, peers) for peers in find_peers(connection)]

    def charges(self) -> Iterator[dict[str, Any]]:
        """Every charge there is, a group a round, in the order of the log."""
        with self._database.reading() as connection:
            history = self._history(connection)
            names = {group: name for run in history.runs.values() for group, name in run.groups.items()}
            for entry, group, q, sigma in connection.execute(select(charges).order_by(*charges.primary_key)):
                paid = history.rounds[entry]
                yield {
                    "entry": entry,
                    "at": paid.at,
                    "run": paid.run,
                    "round": paid.round,
                    "group": names[group],
                    "sampling_rate": q,
                    "noise_multiplier": sigma,
                    "state": paid.state,
                }

    def clients(self) -> Iterator[tuple[str, Account]]:
        """Every client with its account."""
        with self._database.reading() as connection:
            history = self._history(connection)
            names = dict(connection.execute(select(clients.c.client, clients.c.name)).all())
            known: dict[tuple[float, float, tuple[int, ...]], Account] = {}
            for number, epsilon, delta, taken in each_client(connection):
                key = (epsilon, delta, taken)
                if key not in known:
                    known[key] = peer_account(history, Peers(Budget(epsilon, delta), taken, 1, names[number]))
                yield names[number], known[key]

    def history(self) -> History:
        """The whole log, replayed and checked."""
        with self._database.reading() as connection:
            return self._history(connection)

    def verify(self, noted: str | None = None) -> tuple[Position, list[Account]]:
        """Walk the chain, check plans and charges against each other, and recompute every account.

        Args:
            noted: the hash of an entry, noted down earlier: it must still be in the chain.

        Returns:
            Where the log ends (to be noted), and all accounts.

        Raises:
            VerificationError: something was changed, or somebody is over budget.
        """
        with self._database.reading() as connection:
            history, seen = History(self.place), noted is None
            plans: dict[int, Plan] = {}
            for entry in history.follow(connection):
                seen = seen or entry.hash == noted
                if entry.kind in ("run", "replan"):
                    plans[entry.run or 0] = load_stored_plan(connection, entry.detail["plan"], self.place)
                elif entry.kind == "reserve":
                    self._check_charges(entry, plans[entry.run or 0])
            if not seen:
                raise VerificationError(
                    f"{self.place}: no entry has the noted hash {noted}: the log was cut or rewritten."
                )
            self._check_counts(connection, history)
            found = [peer_account(history, peers) for peers in find_peers(connection)]
        over = [account for account in found if account.is_over]
        if over:
            raise VerificationError(
                f"{self.place}: client {over[0].example!r} is over budget: epsilon = {over[0].epsilon:.6g} of "
                f"{over[0].budget.epsilon:g} is spent."
            )
        return history.position, found

    def _check_counts(self, connection: Connection, history: History) -> None:
        """No table may hold more than the log tells of."""
        groups_ = sum(len(run.groups) for run in history.runs.values())
        members_ = sum(run.members for run in history.runs.values())
        known = connection.execute(select(func.count(budgets.c.client.distinct()))).scalar_one()
        counts = {runs: len(history.runs), groups: groups_, members: members_, clients: known, budgets: history.budgets}
        counts[charges] = sum(charged.total() for charged in history.charges.values())
        counts[entries] = history.position.entry
        for table, count in counts.items():
            if connection.execute(select(func.count()).select_from(table)).scalar_one() != count:
                raise VerificationError(f"{self.place}: the table {table.name!r} has rows that no entry tells of.")

    def _check_charges(self, entry: Entry, plan: Plan) -> None:
        """A reservation must be what its run's plan says."""
        round_ = (entry.round or 0) - 1
        planned = [(row.sampling_rate[round_], row.noise_multiplier[round_]) for row in plan.groups]
        if [pair for _, *pair in entry.rows] != [list(pair) for pair in planned]:
            raise VerificationError(f"{self.place}: entry {entry.number} does not charge what the plan says.")

    def _check_spent(self, connection: Connection, given: Mapping[str, Budget], numbers: Mapping[str, int]) -> None:
        """Nobody gets a budget below what is spent."""
        name_of = {number: name for name, number in numbers.items()}
        asked: dict[tuple[Budget, tuple[int, ...]], str] = {}
        for client, _, _, taken in each_client(connection):
            if taken and client in name_of:
                asked.setdefault((given[name_of[client]], taken), name_of[client])
        if not asked:
            return
        history = self._history(connection)
        for (budget, taken), name in asked.items():
            account = peer_account(history, Peers(budget, taken, 1, name))
            if account.is_over:
                raise InputError(
                    f"client {name!r}: epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is below what it has "
                    f"spent, {account.epsilon:.6g}."
                )

    def _history(self, connection: Connection) -> History:
        history = History(self.place)
        for _ in history.follow(connection):
            pass
        return history

    def backup(self, path: Path | str) -> None:
        """Copy the ledger as it is now into a new SQLite file, whatever it is itself; others go on meanwhile."""
        with self._database.reading() as connection:
            copy_to_file(connection, Path(path))
