"""The ways things go wrong: a user's mistake, a broken promise, a run that stopped."""

from __future__ import annotations


class InputError(ValueError):
    """A value the user gave is not usable; the message names the field, its value and what is allowed."""


class VerificationError(RuntimeError):
    """A plan does not keep what it promises: somebody is over budget, or its numbers contradict each other."""


class StoppedError(RuntimeError):
    """A run stopped half-way and can be resumed; the message says how."""
