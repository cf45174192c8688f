"""Who is who: names of clients with budgets joined with names of clients with data."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nestegg.errors import InputError


def check_name(name: object) -> str:
    """Refuse a name that is no text, or empty: numbers are not turned into names, so that no two become one."""
    if not isinstance(name, str) or not name:
        raise InputError(f"the client's name {name!r} must be a text that is not empty.")
    return name


def positions(names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Return where each of the wanted clients stands in the names of a source.

    A name is the same however its Unicode is composed, as in the ledger.

    Example:
        >>> positions(["ada", "bob", "eve"], ["eve", "ada"])
        array([2, 0])
        >>> positions(["ada", "bob"], ["eve", "ada"])
        Traceback (most recent call last):
        nestegg.errors.InputError: 'eve' has no data.
    """
    found = places(names, wanted)
    missing = [name for name, position in found.items() if position is None]
    if missing:
        raise InputError(f"{_listed(missing)} no data.")
    return np.array([found[normal(name)] for name in wanted], np.int64)


def joined(budgets: Sequence[str], names: Sequence[str]) -> NDArray[np.int64]:
    """Return where each client with a budget stands in the names of a source; both must name the same clients.

    Example:
        >>> joined(["bob", "ada"], ["ada", "bob"])
        array([1, 0])
        >>> joined(["bob", "ada"], ["ada", "eve"])
        Traceback (most recent call last):
        nestegg.errors.InputError: budgets and data must name the same clients: 'bob' has no data; 'eve' has no budget.
    """
    found = places(names, budgets)
    if len(found) < len(budgets):
        raise InputError(
            f"budgets name {len(budgets)} clients, of which {len(found)} are different; each has one budget."
        )
    without_data = [name for name, position in found.items() if position is None]
    if without_data or len(names) != len(budgets):
        without_budget = [name for name in names if normal(name) not in found]
        lacks = [
            f"{_listed(who)} no {what}" for who, what in ((without_data, "data"), (without_budget, "budget")) if who
        ]
        raise InputError(f"budgets and data must name the same clients: {'; '.join(lacks)}.")
    return np.fromiter(found.values(), np.int64, len(found))


def places(names: Iterable[str], wanted: Sequence[str]) -> dict[str, int | None]:
    """Return the position of each wanted name, in their order; only these are kept: names may be a million."""
    found: dict[str, int | None] = dict.fromkeys(map(normal, wanted))
    for position, name in enumerate(map(normal, names)):
        if name in found:
            if found[name] is not None:
                raise InputError(f"the client's name {name!r} is in the data twice; names must be unique.")
            found[name] = position
    return found


def normal(name: str) -> str:
    """Return a name as it is however its Unicode was composed."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _listed(names: Sequence[str]) -> str:
    """At most three names, the number of the others, and the verb for them."""
    shown = ", ".join(map(repr, names[:3]))
    if len(names) > 3:
        return f"{shown} and {len(names) - 3:,} more have"
    return f"{shown} {'has' if len(names) == 1 else 'have'}"
