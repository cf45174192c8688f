"""Processes that die at any statement of the ledger, in this process: cheaper than kill -9, and to the statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import Pool

from nestegg.ledger.database import Database


class Death(BaseException):
    """A process dies here."""


class Fuse:
    """Lets a process die at its n-th statement, before its commit, or right after it."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.committed = False
        self._connections: list[Any] = []

    @contextmanager
    def lit(self, left: int | None) -> Iterator[None]:
        self.left, self.committed = left, False
        self._connections.clear()
        try:
            yield
        finally:
            self.left = None

    def burn(self, *_: Any) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                for connection in self._connections:  # what the database does when its client is gone
                    connection.rollback()
                raise Death

    def opens(self, connection: Any, *_: Any) -> None:
        self._connections.append(connection)

    def writing(self, original: Callable[[Database], Any]) -> Callable[[Database], Any]:
        """Transactions after whose commit a process may die, too."""

        @contextmanager
        def watched(database: Database) -> Iterator[Connection]:
            with original(database) as connection:
                yield connection
            self.committed = True
            self.burn()

        return watched

    @contextmanager
    def laid(self) -> Iterator[None]:
        """Watch every statement and every commit."""
        watched = (
            (Engine, "before_cursor_execute", self.burn),
            (Engine, "commit", self.burn),
            (Pool, "checkout", self.opens),
        )
        for where, kind, call in watched:
            event.listen(where, kind, call)
        try:
            with patch.object(Database, "writing", self.writing(Database.writing)):
                yield
        finally:
            for where, kind, call in watched:
                event.remove(where, kind, call)
