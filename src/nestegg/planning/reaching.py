"""How much of a plan's noise reaches the final model, beside spending evenly: why one schedule beats another."""

from __future__ import annotations

import numpy as np

from nestegg.accounting import Array
from nestegg.planning.curves import Pace
from nestegg.planning.influence import forgetting, resampled
from nestegg.planning.plan import Plan
from nestegg.planning.planners import Optimal


def reaching_noise(plan: Plan, pace: Pace, kept: Array) -> Array:
    """Return the variance that each round adds to every parameter of the final model, to leading order.

    It is (w_t c_t σ^t / (q^t N))². Clipping bias and the variance of sampling are left out: evidence comes from
    training.

    Args:
        plan: by which noise is added.
        pace: learning rates of all rounds, and the unit of clip norms.
        kept: w_t, how much of each round's noise is not forgotten.

    >>> from nestegg import Budget, Group, Optimal, Uniform, plan
    >>> from nestegg.planning.curves import pace_of
    >>> group, pace = [Group("all", 100, Budget(10.0))], pace_of(None, 25)
    >>> best, even = (plan(group, 25, method=how, spending_rate=1.0, accountant="gaussian")
    ...               for how in (Optimal(memory=0.0), Uniform()))
    >>> gain = reaching_noise(even, pace, np.ones(25)).sum() / reaching_noise(best, pace, np.ones(25)).sum()
    >>> round(float(gain), 2)
    1.46
    """
    if not plan.is_private:
        return np.zeros(plan.rounds)
    noise = plan.clip_norm * np.array(pace.clip_scale) * np.array(plan.round_noise_multiplier)
    return np.asarray(np.square(kept * noise / (np.array(plan.mean_sampling_rate) * plan.clients)))


def assumed_memory(plan: Plan, pace: Pace) -> tuple[Array, str]:
    """Return w_t by which a plan was made, and its name for people; of plans that assume nothing, the default κ.

    >>> from nestegg import Budget, Group, plan
    >>> from nestegg.planning.curves import pace_of
    >>> made = plan([Group("all", 100, Budget(10.0))], 25, method="optimal")
    >>> assumed_memory(made, pace_of(None, 25))[1]
    'κ = 2'
    """
    measured = plan.parameters.get("influence") if plan.method == "optimal" else None
    if measured is not None:
        return resampled(np.array(measured, np.float64), plan.rounds), "as measured"
    memory = plan.parameters["memory"] if plan.method == "optimal" else Optimal().memory
    return forgetting(memory, pace.learning_rate), f"κ = {memory:g}"
