"""Accounting by privacy loss distributions (Google's dp_accounting): tighter than Rényi, and its independent judge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestegg.accounting.accountant import Accountant
from nestegg.accounting.sampled_gaussian import Array

if TYPE_CHECKING:
    from dp_accounting.pld import privacy_loss_distribution as pld

# Width of a cell of the discretised loss, at most and as a share of a release's own loss. Measured at q = 0.9,
# σ = 2.4255, 25 rounds: ε is 2e-5 above that of a grid fifty times as fine, for a fiftieth of the time.
INTERVAL = 5e-3
_SHARE = 1 / 50
_CELLS = 20_000  # of one release, at most
# Mass that a composition may move to an infinite loss; far below any δ, however often it happens.
_TRUNCATION = 1e-22
# Distributions are composed by fast Fourier transforms, whose rounding is relative to the whole mass and not to the
# tail: measured, δ comes out up to 7e-17 too small for each release. More than that is taken off before ε is read.
_LOST = 1e-15
# Below this δ what is taken off would matter, and PLD is not asked.
SMALLEST_DELTA = 1e-12
# A rate below this one counts as this one: pessimistic, and within what the library can represent.
_SMALLEST_RATE = 1e-12


@dataclass(frozen=True, eq=False)
class PldSpending:
    """What clients have spent: a privacy loss distribution a row. `+` composes releases, `*` repeats them.

    Attributes:
        losses: the distributions.
        releases: how many releases each is composed of, by which the error of composing them grows.
    """

    losses: tuple[pld.PrivacyLossDistribution, ...]
    releases: tuple[int, ...]

    def __add__(self, other: PldSpending) -> PldSpending:
        losses = (a.compose(b, _TRUNCATION) for a, b in zip(self.losses, other.losses, strict=True))
        return PldSpending(tuple(losses), tuple(map(sum, zip(self.releases, other.releases, strict=True))))

    def __mul__(self, count: ArrayLike) -> PldSpending:
        counts = [int(n) for n in np.broadcast_to(count, len(self.losses))]
        losses = (loss.self_compose(n, _TRUNCATION) for loss, n in zip(self.losses, counts, strict=True))
        return PldSpending(tuple(losses), tuple(a * n for a, n in zip(self.releases, counts, strict=True)))

    def rows(self, rows: NDArray[np.intp]) -> PldSpending:
        """The distributions of some rows."""
        return PldSpending(tuple(self.losses[i] for i in rows), tuple(self.releases[i] for i in rows))

    def replaced(self, rows: NDArray[np.intp], other: PldSpending) -> PldSpending:
        """The same distributions with some rows exchanged for those of `other`."""
        losses, releases = list(self.losses), list(self.releases)
        for i, loss, count in zip(rows, other.losses, other.releases, strict=True):
            losses[i], releases[i] = loss, count
        return PldSpending(tuple(losses), tuple(releases))

    def total(self) -> PldSpending:
        """All rows composed into one."""
        return reduce(add, (self.rows(np.array([i])) for i in range(len(self.losses))))

    def running(self, before: PldSpending) -> PldSpending:
        """All that is composed after every row, begun with `before`."""
        after = list(accumulate((self.rows(np.array([i])) for i in range(len(self.losses))), initial=before))[1:]
        return PldSpending(tuple(one.losses[0] for one in after), tuple(one.releases[0] for one in after))

    def epsilon(self, delta: float) -> Array:
        """The smallest ε of every row; infinite where δ is too small for it to be known."""
        return np.array([self._epsilon(loss, delta, n) for loss, n in zip(self.losses, self.releases, strict=True)])

    def delta(self, epsilon: float) -> Array:
        """The smallest δ of every row for a given ε, with all that composing can have taken from it."""
        found = zip(self.losses, self.releases, strict=True)
        return np.array([min(float(loss.get_delta_for_epsilon(epsilon)) + _LOST * n, 1.0) for loss, n in found])

    @staticmethod
    def _epsilon(loss: pld.PrivacyLossDistribution, delta: float, releases: int) -> float:
        if not releases:
            return 0.0
        known = delta - _LOST * releases
        return float(loss.get_epsilon_for_delta(known)) if delta >= SMALLEST_DELTA and known > 0.0 else float("inf")


@dataclass(frozen=True)
class PldAccountant(Accountant[PldSpending]):
    """Accounts by discretised privacy loss distributions; every rounding is pessimistic.

    Attributes:
        interval: width of a cell of the discretised privacy loss. Distributions compose only on the same grid.
    """

    interval: float = INTERVAL
    name: str = "pld"
    rtol: float = 1e-5  # how closely a calibration meets its target

    @classmethod
    def for_releases(cls, q: ArrayLike, sigma: ArrayLike, interval: float = INTERVAL) -> PldAccountant:
        """An accountant whose cells are also small against the privacy loss of the weakest of these releases.

        One release has a loss of about q/σ; on a grid coarser than that, rounding up would dominate the result.
        Releases a thousand times weaker than the strongest do not count, and no release gets too many cells.
        """
        q, sigma = np.atleast_1d(q), np.atleast_1d(sigma)
        losses = q / sigma
        losses = losses[(losses > 1e-3 * losses.max(initial=0.0)) & (losses > 0.0)]
        if not losses.size:
            return cls(interval)
        largest = np.logaddexp(0.0, np.log(np.maximum(q, 1e-300)) + 9.0 / sigma + 0.5 / np.square(sigma)).max()
        return cls(min(interval, max(float(losses.min()) * _SHARE, float(largest) / _CELLS)))

    def spend(self, q: ArrayLike, sigma: ArrayLike) -> PldSpending:
        """One release for each row (q, σ)."""
        rates, noises = np.broadcast_arrays(np.atleast_1d(q), np.atleast_1d(sigma))
        losses = (self._release(float(p), float(s)) for p, s in zip(rates, noises, strict=True))
        return PldSpending(tuple(losses), tuple(int(p > 0.0) for p in rates))

    def _release(self, q: float, sigma: float) -> pld.PrivacyLossDistribution:
        from dp_accounting.pld import privacy_loss_distribution as pld  # a second to import: only for those who need it

        from nestegg.accounting.release_loss import release_loss

        if q == 0.0:
            return pld.identity(self.interval)
        return release_loss(max(q, _SMALLEST_RATE), sigma, self.interval)
