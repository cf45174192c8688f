"""FedAvg: no noise, so no privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestegg.planning.schedule import Schedule

if TYPE_CHECKING:
    from nestegg.planning.plan import GroupPlan
    from nestegg.planning.setting import Setting


@dataclass(frozen=True)
class NoNoise:
    """Everybody at the spending rate, without noise: what is spent has no bound."""

    def schedule(self, setting: Setting) -> Schedule:
        """Return rates, and noise that is 0."""
        rates = np.full(setting.shape, setting.spending_rate)
        return Schedule(rates, np.zeros(setting.shape), np.full(setting.shape, np.inf))

    def rest(self, after: int, row: GroupPlan) -> NoNoise:
        """Return the same."""
        return self
