"""What a planner plans for, as one public value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestegg.accounting import Accountant, Array
from nestegg.errors import InputError
from nestegg.planning.budget import Group
from nestegg.planning.curves import Pace
from nestegg.planning.schedule import Schedule, calibrated, in_batches, stitched, with_noise

MAX_RATIO = 1e4


@dataclass(frozen=True, eq=False)
class Setting:
    """All that a planner may know. Everything in it is public: it depends on budgets, never on data.

    Attributes:
        groups: with saving rates and transitions written out, and with what each has already spent.
        rounds: T.
        spending_rate: q.
        accountants: for each group the one by which its spending counts.
        clip_norm: c, the mean of the clients' clip norms.
        pace: learning rates of all rounds, and the unit of clip norms, from which follows how much noise a round adds.
    """

    groups: tuple[Group, ...]
    rounds: int
    spending_rate: float
    accountants: tuple[Accountant[Any], ...]
    clip_norm: float
    pace: Pace

    @property
    def clip_scale(self) -> tuple[float, ...]:
        """A factor for each round by which clip norms and noise are scaled in the unit of updates.

        It is the learning rate λ_t where clip norms are norms of accumulated gradients, 1 where of updates.
        """
        return self.pace.clip_scale

    @property
    def shape(self) -> tuple[int, int]:
        """How many groups and rounds there are: the shape of a schedule."""
        return len(self.groups), self.rounds

    @property
    def budgets(self) -> Array:
        """ε of every group."""
        return np.array([group.budget.epsilon for group in self.groups])

    @property
    def clients(self) -> NDArray[np.int64]:
        """How many clients every group has."""
        return np.array([group.clients for group in self.groups], np.int64)

    @property
    def delta(self) -> float:
        """δ of all budgets."""
        return self.groups[0].budget.delta

    def calibrated(self, rates: ArrayLike, relative_noise: ArrayLike, *, coarse: bool = False) -> Schedule:
        """Return the schedule with noise in proportion to `relative_noise` by which every group just meets its budget.

        What a group has already spent counts. For each group one number is found, by which its noise is scaled.

        Args:
            rates: sampling rates: one for all, one for each round, or a row for each group.
            relative_noise: likewise; of a row, only the ratios matter.
            coarse: whether to look for that number with rounded noise first. It is met as closely, in a third of the
                time where hundreds of rounds differ, but in other last digits.
        """
        q = self._rows("rates", rates, 1.0)
        relative = self._rows("relative_noise", relative_noise, np.inf)
        least, most = relative.min(axis=1), relative.max(axis=1)
        if (most > MAX_RATIO * least).any():
            i = int(np.argmax(most / least))
            raise InputError(
                f"relative_noise goes from {least[i]:g} to {most[i]:g}; a factor of {MAX_RATIO:g} is allowed."
            )
        alike: dict[bytes, list[int]] = {}
        for i in range(len(self.groups)):
            alike.setdefault(q[i].tobytes() + relative[i].tobytes(), []).append(i)
        places = [np.array(rows) for rows in alike.values()]
        return stitched(places, [self.only(rows)._alike(q[rows[0]], relative[rows[0]], coarse) for rows in places])

    def spent_by(self, rates: Array, noise: Array) -> Array:
        """Return every group's ε after every round by given rates and noise, with what it has already spent."""
        made = in_batches(
            self.groups, self.accountants, lambda batch: with_noise(batch, rates[batch.rows], noise[batch.rows])
        )
        assert made.epsilon_spent is not None
        return made.epsilon_spent

    def only(self, rows: Sequence[int] | NDArray[np.intp]) -> Setting:
        """Return the setting of some of the groups, by their places."""
        return replace(
            self,
            groups=tuple(self.groups[i] for i in rows),
            accountants=tuple(self.accountants[i] for i in rows if self.accountants),  # none without noise
        )

    def _alike(self, rates: Array, relative: Array, coarse: bool) -> Schedule:
        return in_batches(
            self.groups, self.accountants, lambda batch: calibrated(batch, rates, relative, coarse=coarse)
        )

    def _rows(self, field: str, values: ArrayLike, most: float) -> Array:
        """Values as a row for each group."""
        try:
            numbers = np.asarray(values, np.float64)
            rows = np.ascontiguousarray(np.broadcast_to(numbers, self.shape))
        except (TypeError, ValueError):
            raise InputError(
                f"{field} must be a number, one for each of the {self.rounds} rounds, or such a row for each of the "
                f"{len(self.groups)} groups."
            ) from None
        if not (np.isfinite(rows) & (rows > 0.0) & (rows <= most)).all():
            allowed = "above 0 and at most 1" if most == 1.0 else "finite and above 0"
            raise InputError(f"{field} must be {allowed}.")
        return rows
