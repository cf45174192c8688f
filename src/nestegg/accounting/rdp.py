"""Rényi accounting: curves that add up over rounds, and their conversion to (ε, δ)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestegg.accounting.accountant import Accountant
from nestegg.accounting.sampled_gaussian import Array, rdp

# Opacus' default list (1.1 … 10.9, 12 … 63) with its gap at 11 and its end at 63 closed, orders close to 1 for
# large ε, and four orders an octave up to 4096 for small ε. The grid is part of a result: each plan stores it.
ORDERS: tuple[float, ...] = (
    *(1.0 + k / 100.0 for k in range(1, 10)),
    *(1.0 + k / 10.0 for k in range(1, 100)),
    *(float(k) for k in range(11, 65)),
    *(float(2**octave * quarter) for octave in range(4, 10) for quarter in range(5, 9)),
)


@dataclass(frozen=True, eq=False)
class RdpSpending:
    """What clients have spent: a Rényi curve a row. `+` composes releases, `*` repeats them."""

    orders: Array
    values: Array  # (rows, orders)

    def __add__(self, other: RdpSpending) -> RdpSpending:
        return RdpSpending(self.orders, self.values + other.values)

    def __mul__(self, count: ArrayLike) -> RdpSpending:
        return RdpSpending(self.orders, self.values * np.atleast_1d(np.asarray(count))[:, None])

    def rows(self, rows: NDArray[np.intp]) -> RdpSpending:
        """The curves of some rows."""
        return RdpSpending(self.orders, self.values[rows])

    def replaced(self, rows: NDArray[np.intp], other: RdpSpending) -> RdpSpending:
        """The same curves with some rows exchanged for those of `other`."""
        values = self.values.copy()
        values[rows] = other.values
        return RdpSpending(self.orders, values)

    def total(self) -> RdpSpending:
        """All rows composed into one."""
        return RdpSpending(self.orders, self.values.sum(axis=0, keepdims=True))

    def running(self, before: RdpSpending) -> RdpSpending:
        """The sum after every row, begun with `before`."""
        return RdpSpending(self.orders, before.values + np.cumsum(self.values, axis=0))

    def epsilon(self, delta: float) -> Array:
        """The smallest ε of every row: the paper's lemma from RDP to DP, minimised over the orders, never below 0."""
        spent = self.values[:, -1] > 0.0  # a curve never falls: what is 0 at its end is 0, whatever the lemma allows
        return np.where(spent, np.maximum(self._epsilons(delta).min(axis=-1), 0.0), 0.0)

    def best_order(self, delta: float) -> NDArray[np.intp]:
        """Index of the order that gives `epsilon`."""
        return np.asarray(self._epsilons(delta).argmin(axis=-1))

    def delta(self, epsilon: float) -> Array:
        """The smallest δ of every row for a given ε: the same lemma solved for δ, never above 1."""
        a = self.orders
        log_delta = (a - 1.0) * (self.values - epsilon + np.log1p(-1.0 / a)) - np.log(a)
        return np.asarray(np.exp(np.minimum(log_delta.min(axis=-1), 0.0)))

    def _epsilons(self, delta: float) -> Array:
        a = self.orders
        return np.asarray(self.values + (np.log1p(-1.0 / a) - (np.log(delta) + np.log(a)) / (a - 1.0)))


@dataclass(frozen=True)
class RdpAccountant(Accountant[RdpSpending]):
    """Accounts by exact Rényi curves on a grid of orders.

    Every order gives a valid ε, so fewer orders can only overstate the spending: what a planner searches on a
    narrowed grid stays safe on the whole one.
    """

    orders: tuple[float, ...] = ORDERS
    name: str = "rdp"
    rtol: float = 1e-9  # how closely a calibration meets its target

    def spend(self, q: ArrayLike, sigma: ArrayLike) -> RdpSpending:
        """One release for each row (q, σ)."""
        return RdpSpending(np.asarray(self.orders), rdp(np.atleast_1d(q), np.atleast_1d(sigma), self.orders))

    def view(self, spending: RdpSpending) -> RdpSpending:
        """The same spending on the orders of this accountant."""
        columns = np.searchsorted(spending.orders, self.orders)
        return RdpSpending(np.asarray(self.orders), spending.values[:, columns])

    def after(self, spent: RdpSpending, delta: float) -> RdpAccountant:
        """Without the orders that more spending can never make best.

        The curve of every further release rises with the order, so the best order of a sum can only fall.
        """
        return replace(self, orders=self.orders[: int(spent.best_order(delta).max()) + 2])

    def below(self, spent: RdpSpending, delta: float) -> RdpAccountant:
        """Without the octaves of orders that more spending can never make best; `rdp` computes octaves apart."""
        first_out = min(int(spent.best_order(delta).max()) + 2, len(self.orders))
        octave = np.exp2(np.ceil(np.log2(max(self.orders[first_out - 1], 16.0))))
        return replace(self, orders=tuple(order for order in self.orders if order <= octave))

    def near(self, total: RdpSpending, delta: float) -> RdpAccountant:
        """Only the orders around the best one of every row."""
        best = total.best_order(delta)
        return replace(self, orders=self.orders[max(int(best.min()) - 4, 0) : int(best.max()) + 5])

    def above(self, search: RdpAccountant) -> RdpAccountant:
        """Without the orders well below those of a search: the best order of what is spent is never below them."""
        first = self.orders.index(search.orders[0])
        return replace(self, orders=self.orders[max(first - 8, 0) :])

    def reaches_end_of(self, books: RdpAccountant, whole: RdpAccountant) -> bool:
        """Whether a search has come down to the lowest order of `books`, which is not the lowest there is."""
        return self.orders[0] <= books.orders[0] and books.orders[0] > whole.orders[0]

    def within(self, books: RdpAccountant) -> RdpAccountant:
        """Without the orders that `books` no longer has."""
        kept = tuple(order for order in self.orders if order <= books.orders[-1])
        return replace(self, orders=kept) if kept else books

    def decides(self, total: RdpSpending, delta: float, whole: RdpAccountant) -> bool:
        """Whether the best orders of `total` lie inside, so that the orders of `whole` would give the same ε."""
        best = total.best_order(delta)
        low = bool(np.all(best > 0)) or self.orders[0] == whole.orders[0]
        return low and (bool(np.all(best < len(self.orders) - 1)) or self.orders[-1] == whole.orders[-1])
