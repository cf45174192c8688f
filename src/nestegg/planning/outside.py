"""What a planner of somebody else returns, checked before it becomes a plan."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import MAX_NOISE, MIN_NOISE, Array
from nestegg.errors import InputError, reason
from nestegg.planning.planners import Planner
from nestegg.planning.schedule import Schedule
from nestegg.planning.setting import Setting


def checked_schedule(name: str, planner: Planner, setting: Setting) -> Schedule:
    """Return the schedule of a planner that is not ours, with what is spent by it, if nobody would be over budget.

    Raises:
        InputError: the planner failed, or what it returned is not a schedule that keeps everybody within budget; the
            sentence names the planner, the group, the round and the value.
    """
    try:
        made = planner.schedule(setting)
        rates, noise = (np.array(rows, np.float64) for rows in (made.sampling_rate, made.noise_multiplier))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (Exception, SystemExit) as error:  # code of somebody else may do anything
        raise InputError(f"{name}: schedule(setting) failed, {reason(error)}.") from error
    for field, rows in (("sampling_rate", rates), ("noise_multiplier", noise)):
        if rows.shape != setting.shape:
            raise InputError(
                f"{name}: {field} has the shape {rows.shape}; it must have a row for each of the {setting.shape[0]} "
                f"groups and a column for each of the {setting.rounds} rounds."
            )
    if (found := _first((rates > 0.0) & (rates <= 1.0))) is not None:  # NaN is neither
        raise _refused(name, setting, "sampling_rate", rates, found, "must be above 0 and at most 1")
    if (found := _first((noise >= MIN_NOISE) & (noise <= MAX_NOISE))) is not None:
        allowed = f"must be at least {MIN_NOISE:g} and at most {MAX_NOISE:g}"
        raise _refused(name, setting, "noise_multiplier", noise, found, allowed)
    try:
        spent = setting.spent_by(rates, noise)
    except InputError as error:  # rates that the accountant does not know
        raise InputError(f"{name}: {error}") from None
    if (found := _first(spent <= setting.budgets[:, None])) is not None:
        budget = f"is over the group's budget, {setting.budgets[found[0]]:g}"
        raise _refused(name, setting, "epsilon spent", spent, found, budget)
    return Schedule(rates, noise, spent)


def _first(holds: NDArray[np.bool_]) -> tuple[int, int] | None:
    """The first group and round for which something does not hold."""
    if holds.all():
        return None
    group, round_ = np.argwhere(~holds)[0]
    return int(group), int(round_)


def _refused(name: str, setting: Setting, field: str, rows: Array, place: tuple[int, int], allowed: str) -> InputError:
    where = f"{name}: group {setting.groups[place[0]].name!r}, round {place[1] + 1}"
    return InputError(f"{where}: {field} = {float(rows[place])!r} {allowed}.")
