"""Uniform spending, as in DP-FedAvg and IDP-FedAvg."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nestegg.planning.planners.spend_as_you_go import SpendAsYouGo

if TYPE_CHECKING:
    from nestegg.planning.plan import GroupPlan
    from nestegg.planning.schedule import Schedule
    from nestegg.planning.setting import Setting


@dataclass(frozen=True)
class Uniform:
    """Every round at the spending rate and with the same noise: a saver that never saves.

    >>> from nestegg import Budget, Group, plan
    >>> made = plan([Group("all", 100, Budget(10.0))], rounds=25, method=Uniform())
    >>> made.method, {round(sigma, 3) for sigma in made.groups[0].noise_multiplier}
    ('idp-fedavg', {2.424})
    """

    def schedule(self, setting: Setting) -> Schedule:
        """Return the schedule of equal rounds."""
        groups = (replace(group, saving_rate=setting.spending_rate, transition=1) for group in setting.groups)
        return SpendAsYouGo().schedule(replace(setting, groups=tuple(groups)))

    def rest(self, after: int, row: GroupPlan) -> Uniform:
        """Return the same: equal rounds, with what is left."""
        return self
