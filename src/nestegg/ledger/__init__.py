"""The privacy ledger: what every client has spent, durable, append-only, enforced. It needs no torch."""

from nestegg.ledger.accounts import Account, Part
from nestegg.ledger.books import RunBooks
from nestegg.ledger.history import History, RunState
from nestegg.ledger.ledger import Ledger

__all__ = ["Account", "History", "Ledger", "Part", "RunBooks", "RunState"]
