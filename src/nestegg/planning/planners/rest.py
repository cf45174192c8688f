"""What is left of a plan: every group by its own planner, or as it was planned where a planner does not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from nestegg.planning.schedule import Schedule, stitched

if TYPE_CHECKING:
    from nestegg.planning.setting import Setting


class Planner(Protocol):
    """An idea of when to spend: a frozen dataclass with this method.

    It may also have `rest(after, row)`, which returns the planner for the rounds after round `after` of the group whose
    row of the plan is given. Without it, what is left of a plan keeps its rates, and its noise in proportion.
    """

    def schedule(self, setting: Setting, /) -> Schedule:
        """Return a sampling rate and a noise multiplier for every group and round, nobody over budget."""


@dataclass(frozen=True)
class Rest:
    """The rounds of one group as they were planned, all noise scaled to what is left of its budget.

    Attributes:
        rates: of every round that is left.
        noise: of every round that is left.
    """

    rates: tuple[float, ...]
    noise: tuple[float, ...]

    def schedule(self, setting: Setting) -> Schedule:
        """Return the same rates with noise in proportion."""
        return setting.calibrated(self.rates, self.noise)


@dataclass(frozen=True)
class Each:
    """A planner for each group; those with equal ones are planned together."""

    planners: Sequence[Planner]

    def schedule(self, setting: Setting) -> Schedule:
        """Return every group's rows by its own planner."""
        kinds: list[tuple[Planner, list[int]]] = []
        for i, planner in enumerate(self.planners):
            alike = next((rows for one, rows in kinds if one == planner), None)
            if alike is None:
                kinds.append((planner, [i]))
            else:
                alike.append(i)
        parts = [planner.schedule(setting.only(rows)) for planner, rows in kinds]
        return stitched([np.array(rows) for _, rows in kinds], parts)
