"""The ways things go wrong: a user's mistake, a budget that does not suffice, a broken promise, a run that stopped."""

from __future__ import annotations


class InputError(ValueError):
    """A value the user gave is not usable; the message names the field, its value and what is allowed."""


class BudgetError(InputError):
    """Somebody would go over budget; the message says who, by how much, and what would fit. Nothing was charged."""


class VerificationError(RuntimeError):
    """A plan or a ledger does not keep what it promises: somebody is over budget, or it was changed."""


class StoppedError(RuntimeError):
    """A run stopped half-way and can be resumed; the message says how."""


def reason(error: BaseException) -> str:
    """Return what kind of error it is and the first line of what it says, for a sentence about somebody's own code.

    >>> reason(RuntimeError("no idea."))
    'RuntimeError: no idea'
    """
    return f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": .")
