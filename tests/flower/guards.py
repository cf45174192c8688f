"""Terms, a guard that has a budget, and what it has spent: what tests of clients start from."""

from __future__ import annotations

from pathlib import Path

from nestegg import Budget, Ledger
from nestegg.accounting import Charge, GaussianAccountant, compose
from nestegg.flower import Guard, OwnAccount
from nestegg.flower.terms import Terms
from tests.grid import small_plan


def make_terms(run: str = "monday", rounds: int = 4, clipping: str = "flat") -> Terms:
    return Terms(run, small_plan(rounds), clipping, 0, (1.0,) * rounds)


def guard_of(folder: Path, epsilon: float = 5.0) -> Guard:
    return Guard(OwnAccount(folder, Budget(epsilon)))


def spent(folder: Path) -> float:
    with Ledger(folder / "ledger.db", read_only=True) as ledger:
        ledger.verify()
        return ledger.account("own").epsilon


def exact(terms: Terms, rounds: int) -> float:
    """What so many rounds cost a client of the middle group, by the exact account of plans without sampling."""
    noise = terms.row("middle").noise_multiplier[:rounds]
    return float(compose(GaussianAccountant(), [Charge(1.0, sigma) for sigma in noise]).epsilon(1e-5)[0])
