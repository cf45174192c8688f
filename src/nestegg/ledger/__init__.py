"""The privacy ledger: what every client has spent, durable, append-only, enforced. It needs no torch."""

from nestegg.ledger.accounts import Account, Part
from nestegg.ledger.books import RunBooks
from nestegg.ledger.changes import Change
from nestegg.ledger.history import History, RunState
from nestegg.ledger.ledger import Ledger
from nestegg.ledger.memberships import Membership
from nestegg.ledger.rules import RULES, Rule

__all__ = ["RULES", "Account", "Change", "History", "Ledger", "Membership", "Part", "Rule", "RunBooks", "RunState"]
