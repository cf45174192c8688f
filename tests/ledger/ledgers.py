"""Ledgers to try things on: four clients and a plan for them, or a run's configuration with a ledger beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, text

from nestegg import Budget, Group, Plan, plan
from nestegg.ledger import Ledger, RunBooks
from nestegg.ledger.database import checked_url
from tests.runs.test_runs import config as plain_config

NAMES = ("ada", "bob", "cleo", "dan")
LIFE = {name: Budget(epsilon) for name, epsilon in zip(NAMES, (6.0, 6.0, 12.0, 12.0), strict=True)}


def two_groups(epsilon: float = 5.0, rounds: int = 6, **settings: Any) -> Plan:
    groups = [
        Group("strict", 2, Budget(epsilon), saving_rate=0.5, transition=4),
        Group("open", 2, Budget(2 * epsilon)),
    ]
    return plan(groups, rounds, **settings)


def spend(books: RunBooks, rounds: int) -> None:
    for _ in range(rounds):
        round_ = books.state.done + 1
        books.release(round_, books.reserve(round_), f"result {round_}")
        books.check_rest()


def upto(rounds: int, *others: str) -> list[str]:
    """The results that `spend` releases, and others after them."""
    return [*(f"result {i}" for i in range(1, rounds + 1)), *others]


@contextmanager
def begun(
    url: str, made: Plan | None = None, budgets: dict[str, Budget] | None = None, rule: str = "fixed"
) -> Iterator[tuple[Ledger, Any]]:
    with Ledger(url) as ledger:
        ledger.set_budgets(LIFE if budgets is None else budgets, rule=rule)
        yield ledger, ledger.begin("monday", made or two_groups(), NAMES)


def tamper(url: str, statements: str) -> None:
    engine = create_engine(checked_url(url))
    with engine.begin() as connection:
        for statement in statements.split(";"):
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET session_replication_role = replica"))  # no foreign keys
            connection.execute(text(statement))
    engine.dispose()


def tables_in(connection: Connection) -> set[str]:
    kinds = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    }
    return set(connection.execute(text(kinds[connection.dialect.name])).scalars())


def config(folder: Path, method: str = "spend-as-you-go") -> Path:
    """The small configuration, with a ledger beside it."""
    path = plain_config(folder, method)
    path.write_text(path.read_text() + '[ledger]\nurl = "sqlite:///ledger.db"\n')
    return path


def lifetimes(folder: Path, factor: float = 1.3) -> Path:
    """Twelve clients: the first six may spend 10 in a run, the others 30."""
    path = folder / "lifetimes.csv"
    lines = [f"client-{i},{factor * (10 if i <= 6 else 30)}" for i in range(1, 13)]
    path.write_text("\n".join(["client,epsilon", *lines, ""]))
    return path
