"""How much of a plan's noise reaches the final model, and beside what: why one schedule or model beats another."""

from __future__ import annotations

import numpy as np

from nestegg.accounting import Array
from nestegg.checks import whole
from nestegg.planning.curves import Pace
from nestegg.planning.influence import forgetting, resampled
from nestegg.planning.plan import Plan, weights
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


def noise_to_signal(plan: Plan, parameters: int, pace: Pace, kept: Array | None = None) -> float:
    """Return the length of the noise in a final model, beside the longest way that clients could take the model.

    The noise of d parameters has the length √(d Σ_t (w_t c_t σ^t / (q^t N))²). The longest way is Σ_t c_t: in every
    round all updates are as long as their clip norms allow and point in one direction. Both grow with the clip norm
    and with the learning rate alike, so that the ratio depends on neither.

    Args:
        plan: by which noise is added; without noise the ratio is 0.
        parameters: d, those that are trained.
        pace: learning rates of all rounds, and the unit of clip norms.
        kept: w_t, how much of each round's noise is not forgotten; by default what the plan was made with.

    >>> from nestegg import Budget, Group, plan
    >>> from nestegg.planning.curves import pace_of
    >>> made = plan([Group("all", 100, Budget(10.0))], 25)
    >>> [round(noise_to_signal(made, d, pace_of(None, 25)), 3) for d in (4_420, 1_663_370)]
    [0.151, 2.923]
    """
    whole("parameters", parameters, 1)
    if not plan.is_private:
        return 0.0
    rates, norms = (np.array([getattr(row, name) for row in plan.groups]) for name in ("sampling_rate", "clip_norm"))
    longest = weights(plan.groups) @ (rates * norms) / np.array(plan.mean_sampling_rate) * np.array(pace.clip_scale)
    noise = reaching_noise(plan, pace, assumed_memory(plan, pace)[0] if kept is None else kept)
    return float(np.sqrt(parameters * noise.sum()) / longest.sum())
