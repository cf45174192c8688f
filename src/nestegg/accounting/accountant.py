"""The small interface that all accountants share, and the charges they read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestegg.accounting.sampled_gaussian import Array


class Charge(NamedTuple):
    """So many rounds of the sampled Gaussian mechanism at one rate q and one noise multiplier σ."""

    sampling_rate: float
    noise_multiplier: float
    rounds: int = 1


def merged(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """The same charges with equal releases counted; the order of releases does not matter."""
    times: dict[tuple[float, float], int] = {}
    for q, sigma, rounds in charges:
        times[q, sigma] = times.get((q, sigma), 0) + rounds
    return tuple(Charge(q, sigma, rounds) for (q, sigma), rounds in times.items())


class Spending(Protocol):
    """What clients have spent, one a row. `+` composes releases, `*` repeats them; the order does not matter."""

    def __add__(self, other: Self, /) -> Self: ...

    def __mul__(self, count: ArrayLike, /) -> Self: ...

    def rows(self, rows: NDArray[np.intp], /) -> Self:
        """The spending of some rows."""

    def replaced(self, rows: NDArray[np.intp], other: Self, /) -> Self:
        """The same spending with some rows exchanged for those of `other`."""

    def total(self) -> Self:
        """All rows composed into one."""

    def running(self, before: Self, /) -> Self:
        """What is spent after every row, begun with the one row of `before`."""

    def epsilon(self, delta: float, /) -> Array:
        """The smallest ε of every row at a given δ."""

    def delta(self, epsilon: float, /) -> Array:
        """The smallest δ of every row at a given ε."""


S = TypeVar("S", bound=Spending)


class Accountant(Protocol[S]):
    """Turns releases into spending. A new one inherits from this class and has a name, a tolerance and `spend`.

    The other methods let an accountant narrow itself where a search needs less than everything, as that of Rényi
    curves does with its orders. By default there is nothing to leave out.
    """

    @property
    def name(self) -> str:
        """How configurations call it."""

    @property
    def rtol(self) -> float:
        """How closely a calibration meets its target, as a share of it."""

    def spend(self, q: ArrayLike, sigma: ArrayLike) -> S:
        """One release for each row (q, σ)."""

    def view(self, spending: S) -> S:
        """Spending of a wider accountant as this one sees it."""
        return spending

    def after(self, spent: S, delta: float) -> Accountant[S]:
        """As much of the accountant as is needed once `spent` is spent."""
        return self

    def below(self, spent: S, delta: float) -> Accountant[S]:
        """As `after`, with every number that is left the same to the bit."""
        return self

    def near(self, total: S, delta: float) -> Accountant[S]:
        """As much of the accountant as is needed to know the ε of spending close to `total`."""
        return self

    def above(self, search: Any) -> Accountant[S]:
        """Without what lies well below a search."""
        return self

    def reaches_end_of(self, books: Any, whole: Any) -> bool:
        """Whether a search has come down to where `above` cut `books` off from the `whole`."""
        return False

    def within(self, books: Any) -> Accountant[S]:
        """No more of the accountant than `books` still has."""
        return self

    def decides(self, total: S, delta: float, whole: Any) -> bool:
        """Whether a narrowed accountant gives the same ε for `total` as the `whole` one."""
        return True


def compose(accountant: Accountant[S], charges: Sequence[Charge]) -> S:
    """All charges of one client as one spending (a single row): heterogeneous composition.

    >>> from nestegg.accounting import RdpAccountant
    >>> spent = compose(RdpAccountant(), [Charge(0.5, 2.5, 12), Charge(0.9, 2.0, 13)])
    >>> round(float(spent.epsilon(1e-5)[0]), 3)
    9.554
    """
    if not charges:
        return accountant.spend(0.0, 1.0)  # a client that is never sampled spends nothing
    q, sigma, rounds = zip(*charges, strict=True)
    return (accountant.spend(q, sigma) * rounds).total()
