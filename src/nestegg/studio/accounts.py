"""What the ledger page shows. The ledger is opened for reading alone, anew for each request: others may write to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from nestegg.errors import InputError
from nestegg.ledger import Account, Ledger
from nestegg.planning.plan import finite_or_none
from nestegg.studio.draft import Draft
from nestegg.studio.replies import GoesOn

AT_ONCE = 50  # accounts of a page
MOST_CHARGES = 2_000  # lines of a run that a page shows
NONE = "no ledger is open: nestegg studio --ledger URL shows one."


@contextmanager
def opened(where: str | None) -> Iterator[Ledger]:
    """Open a ledger by its URL or file.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    if where is None:
        raise InputError(NONE)
    with Ledger(where if "://" in where else Path(where), read_only=True) as ledger:
        yield ledger


def listed(ledger: Ledger, prefix: str, after: str, run: str | None) -> dict[str, Any]:
    """Return some accounts in the order of their names, and the name after which there are more."""
    names = ledger.names(prefix, after=after, run=run, count=AT_ONCE + 1)
    shown = names[:AT_ONCE]
    known: dict[Any, Account] = {}  # ε is computed once for all that have spent the same
    rows = []
    for name in shown:
        account = ledger.account(name)
        account = known.setdefault((account.budget, account.rule, account.parts, account.withdrawn), account)
        rows.append({"client": name, **_plain(account.numbers())})
    return {"rows": rows, "more": shown[-1] if len(names) > AT_ONCE else None}


def by_pld(ledger: Ledger, client: str) -> dict[str, Any]:
    """Return what a client has spent by privacy loss distributions, which takes a moment."""
    account = ledger.account(client)
    return {"client": account.example, "epsilon_pld": finite_or_none(account.epsilon_pld)}


def client_content(ledger: Ledger, client: str) -> dict[str, Any]:
    """Return a client's account run by run, with every budget it has had."""
    account = ledger.account(client)
    parts = [{"part": part, "epsilon": account.within(part.run)} for part in account.parts]
    return {"account": account, "parts": parts, "changes": list(ledger.changes(client)), "place": ledger.place}


def run_content(ledger: Ledger, run: str, goes_on: GoesOn) -> dict[str, Any]:
    """Return a run's groups, each by the account with the least left, and its charges round by round."""
    books = ledger.books(run)
    goes_on()
    accounts, state = books.accounts(), books.state
    own = (line for line in ledger.charges() if line["run"] == run)
    charges = list(islice(own, MOST_CHARGES + 1))
    return {
        "state": state,
        "plan": books.plan,
        "groups": [
            {"name": name, "account": one, "here": one.within(run), "others": one.without(run)}
            for name, one in accounts.items()
        ],
        "charges": charges[:MOST_CHARGES],
        "is_cut": len(charges) > MOST_CHARGES,
        "place": ledger.place,
    }


def verified(ledger: Ledger) -> dict[str, Any]:
    """Walk the whole chain and recompute every account; returns what came of it, with the day.

    Raises:
        VerificationError: something was changed, or somebody is over budget.
    """
    position, accounts = ledger.verify()
    gone = sum(account.clients for account in accounts if account.withdrawn)
    return {
        "entries": position.entry,
        "head": position.hash,
        "clients": sum(account.clients for account in accounts),
        "withdrawn": gone,
        "day": datetime.now(UTC).date().isoformat(),
    }


class Left:
    """What is left of all accounts, read once for as long as nothing is written to the ledger."""

    def __init__(self, where: str | None) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._known: tuple[Any, list[tuple[float, int]]] = (None, [])

    def sentences(self, draft: Draft, goes_on: GoesOn) -> list[str]:
        """Return for every group of a draft how many accounts have so much left; nothing where there is no ledger."""
        if self._where is None:
            return []
        left = self._left(goes_on)
        if not left:
            return ["The ledger has no accounts yet."]
        all_, least = sum(clients for _, clients in left), min(epsilon for epsilon, _ in left)
        told = []
        for group in draft.groups:
            enough = sum(clients for epsilon, clients in left if epsilon >= group.epsilon)
            told.append(f"{group.name}: {enough:,} of {all_:,} accounts have ε = {group.epsilon:g} or more left.")
        return [*told, f"The least that an account has left is ε = {least:.3f}."]

    def _left(self, goes_on: GoesOn) -> list[tuple[float, int]]:
        """What is left, and of how many accounts, for all that have not withdrawn."""
        while not self._lock.acquire(timeout=0.1):
            goes_on()
        try:
            with opened(self._where) as ledger:
                head = ledger.position()
                if self._known[0] != head:
                    accounts = [one for one in ledger.accounts() if not one.withdrawn]
                    self._known = (head, [(one.left, one.clients) for one in accounts])
            return self._known[1]
        finally:
            self._lock.release()


def _plain(numbers: dict[str, Any]) -> dict[str, Any]:
    return {key: finite_or_none(value) if isinstance(value, float) else value for key, value in numbers.items()}
