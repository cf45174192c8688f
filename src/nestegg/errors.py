"""The two ways things go wrong: a user's mistake, and a broken promise."""

from __future__ import annotations


class InputError(ValueError):
    """A value the user gave is not usable; the message names the field, its value and what is allowed."""


class VerificationError(RuntimeError):
    """A plan does not keep what it promises: somebody is over budget, or its numbers contradict each other."""
