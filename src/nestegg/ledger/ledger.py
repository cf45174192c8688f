"""The privacy ledger: what every client may spend in its life, and what it has spent, over all runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sqlalchemy import select

from nestegg.errors import InputError, VerificationError
from nestegg.ledger.accounts import Account, client_account, each_account, peer_account
from nestegg.ledger.books import RunBooks
from nestegg.ledger.changes import (
    FIRST,
    Change,
    author_of,
    changes_in,
    checked_budgets,
    each_change,
    first_budgets,
    latest_changes,
    other_budgets,
    reason_of,
    write_budgets,
    write_withdrawal,
)
from nestegg.ledger.database import Database, copy_to_file
from nestegg.ledger.history import History, checked_history
from nestegg.ledger.holders import Client, all_clients, checked_name, find_client, find_peers, known_clients
from nestegg.ledger.log import Position, end, load_stored_plan
from nestegg.ledger.looking import RunEntry, each_run, some_names
from nestegg.ledger.memberships import Membership, each_membership
from nestegg.ledger.run_entries import brought, check_members, check_run, find_run, is_known, write_run
from nestegg.ledger.schema import clients, withdrawals
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
    4.099 of 10
    """

    def __init__(self, where: str | Path, read_only: bool = False) -> None:
        self._database = Database(where, read_only)
        self.place = self._database.place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def set_budgets(
        self,
        given: Mapping[str, Budget],
        *,
        rule: str | None = None,
        reason: str | None = None,
        author: str | None = None,
        new: bool = False,
        change_delta: bool = False,
    ) -> None:
        """Give clients a lifetime budget, or another one, all of them or none.

        Args:
            given: budgets by client. Those that a client has already change nothing.
            rule: of accounts that are opened: renyi by default, or gaussian, or fixed; see `nestegg.ledger.rules`.
            reason: why; must be given where a client that has a budget gets another.
            author: who says so; by default $NESTEGG_AUTHOR or the login name.
            new: clients that the ledger does not know may join others that it knows.
            change_delta: clients that have spent something may get another δ, by which they have spent another ε.

        Raises:
            InputError: a client has spent more than that, or withdrew, or one of the above is missing.
        """
        named = checked_budgets(given, rule, reason, author)
        with self._database.writing() as connection:
            known = known_clients(connection, list(named))
            wanted = [(client, named[name]) for name, client in known.items()]
            others = list(other_budgets(connection, wanted, rule, change_delta=change_delta, place=self.place))
            if others and reason is None:
                raise InputError(
                    f"client {others[0].client.name!r} has a budget; another one needs a reason: --reason, or reason=."
                )
            strangers = {name: budget for name, budget in named.items() if name not in known}
            first = first_budgets(connection, strangers, rule, new=new, place=self.place)
            write_budgets(connection, [*others, *first], reason_of(reason or FIRST), author_of(author))

    def withdraw(self, client: str, reason: str, *, author: str | None = None) -> None:
        """Let a client withdraw, for good: it is in no new run, and pays for no round that is reserved from now on.

        Its open runs go on without it, its account stays, and the history says why.

        Raises:
            InputError: it is not known, or has withdrawn already.
        """
        with self._database.writing() as connection:
            found = find_client(connection, client, self.place)
            write_withdrawal(connection, found, reason_of(reason), author_of(author))

    def withdrawn(self) -> frozenset[str]:
        """The clients that have withdrawn."""
        with self._database.reading() as connection:
            return frozenset(connection.execute(select(clients.c.name).join(withdrawals)).scalars())

    def begin(
        self,
        name: str,
        plan: Plan,
        members_: Sequence[str],
        *,
        unknown: Sequence[Budget] | None = None,
        rule: str | None = None,
        note: str | None = None,
    ) -> RunBooks:
        """Begin a run: keep its plan, and who is in which group.

        Args:
            name: of the run, unique.
            plan: what it will spend.
            members_: the clients, in the order of the plan's groups.
            unknown: lifetime budgets for those of them whom the ledger does not know; by default they are an error.
            rule: of the accounts of these; by default gaussian where all rates of the plan are 1, else renyi.
            note: what is to be known of its results wherever the run is shown, as "not for release".

        Raises:
            InputError: the run exists, the plan and its members do not fit, or one of them has withdrawn.
        """
        names = [checked_name(member) for member in members_]
        check_run(name, plan, names)
        with self._database.writing() as connection:
            if is_known(connection, name):
                raise InputError(f"run {name!r} is in the ledger already.")
            found = all_clients(connection, names)
            joining = [found[member] for member in names]
            opened = brought(connection, plan, joining, unknown, rule)
            write_budgets(connection, opened, f"{FIRST}, by run {name}", author_of(None))
            check_members(connection, plan, joining)
            write_run(connection, name, plan, joining, note)
        return RunBooks(self._database, name)

    def check(self, plan: Plan, members_: Sequence[str]) -> int:
        """Refuse a plan that `begin` would refuse its members, before anything else is done.

        Returns:
            How many of them the ledger does not know yet.

        Raises:
            InputError: one of them has withdrawn, or has an account that cannot be kept by such a plan.
        """
        names = [checked_name(member) for member in members_]
        with self._database.reading() as connection:
            known = known_clients(connection, names)
            check_members(connection, plan, [known.get(name, Client(-i, name)) for i, name in enumerate(names)])
        return len(set(names) - known.keys())

    def has_run(self, name: str) -> bool:
        """Whether a run has begun."""
        with self._database.reading() as connection:
            return is_known(connection, name)

    def find_run(self, name: str) -> str:
        """The whole name of the run that is meant by it, by its folder's name, or by how it begins."""
        with self._database.reading() as connection:
            return find_run(connection, name, self.place)

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

    def accounts(self, run: str | None = None) -> list[Account]:
        """The accounts of all peers, or of those who are members of a run."""
        with self._database.reading() as connection:
            history = History.of(connection, self.place)
            number = None if run is None else history.run(run).number
            return [peer_account(history, peers) for peers in find_peers(connection, number)]

    def charges(self) -> Iterator[dict[str, Any]]:
        """Every charge there is, a group a round, in the order of the log.

        It gives the day, not the time: how long a round took tells of its cohort, which is a secret.
        """
        with self._database.reading() as connection:
            yield from History.of(connection, self.place).charge_lines(connection)

    def clients(self) -> Iterator[tuple[str, Account]]:
        """Every client with its account."""
        with self._database.reading() as connection:
            yield from each_account(connection, History.of(connection, self.place))

    def memberships(self) -> Iterator[Membership]:
        """Every client in every run, with what that run has cost it by the plan's accountant and by PLD."""
        with self._database.reading() as connection:
            yield from each_membership(connection, History.of(connection, self.place))

    def names(self, prefix: str = "", *, after: str = "", run: str | None = None, count: int = 50) -> list[str]:
        """Names of clients in their order, some at a time: that begin so, come after one, or are in a run."""
        with self._database.reading() as connection:
            return some_names(connection, prefix, after=after, run=run, count=count)

    def runs(self) -> list[RunEntry]:
        """All runs, as their first entries have them."""
        with self._database.reading() as connection:
            return each_run(connection)

    def position(self) -> Position:
        """Where the log ends, unchecked: as long as it is the same, nothing was written."""
        with self._database.reading() as connection:
            return end(connection)

    def changes(self, client: str | None = None) -> Iterator[Change]:
        """Every budget that was given, and every withdrawal, with reason and author; of one client or of all."""
        with self._database.reading() as connection:
            number = None if client is None else find_client(connection, client, self.place).number
            yield from each_change(connection, number)

    def latest_changes(self, count: int = 12) -> list[Change]:
        """The latest budgets that took another's place, and withdrawals."""
        with self._database.reading() as connection:
            return latest_changes(connection, count)

    def changes_in(self, run: str) -> Iterator[Change]:
        """The budgets that took another's place, and the withdrawals, of a run's members."""
        with self._database.reading() as connection:
            yield from changes_in(connection, History.of(connection, self.place).run(run).number)

    def history(self) -> History:
        """The whole log, replayed and checked."""
        with self._database.reading() as connection:
            return History.of(connection, self.place)

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
            history = checked_history(connection, self.place, noted)
            accounts = [peer_account(history, peers) for peers in find_peers(connection)]
        if over := next((account for account in accounts if account.is_over), None):
            raise VerificationError(
                f"{self.place}: client {over.example!r} is over budget: epsilon = {over.epsilon:.6g} of "
                f"{over.budget.epsilon:g} is spent."
            )
        return history.position, accounts

    def backup(self, path: Path | str) -> None:
        """Copy the ledger as it is now into a new SQLite file, whatever it is itself; others go on meanwhile."""
        with self._database.reading() as connection:
            copy_to_file(connection, Path(path))
