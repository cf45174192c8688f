"""What somebody with experience would say about a plan before anybody trains by it."""

from __future__ import annotations

from collections.abc import Sequence

from nestegg.planning.plan import Plan

# An ε beyond this one allows an attacker to be as good as certain, whatever δ.
MEANINGLESS = 100.0
# Noise of fewer clip norms than this hides hardly anything of one client.
LITTLE = 0.3
# Clip norms that training has use for, generously.
NORMS = (1e-4, 1e5)
_SAME = 1.0 + 1e-9
_NAMED = 3  # groups that a sentence names


def remarks(plan: Plan) -> list[str]:
    """Return sentences about what is odd in a plan; most plans have none. They depend on budgets, never on data.

    Training without noise promises nothing, so that there is nothing to remark.

    >>> from nestegg import Budget, Group, plan
    >>> remarks(plan([Group("all", 1_000, Budget(500.0), saving_rate=0.5)], rounds=300))
    ["Group 'all': epsilon above 100 promises next to nothing."]
    """
    if not plan.is_private:
        return []
    return [*_about_saving(plan), *_about_optimum(plan), *_about_budgets(plan), *_about_noise(plan)]


def _about_saving(plan: Plan) -> list[str]:
    rates = [set(row.sampling_rate) for row in plan.groups]
    if plan.about.rates != "saving" or plan.rounds == 1 or any(len(one) > 1 for one in rates):
        return []
    return [
        f"No group saves: with the same rate in all rounds, {plan.method} is uniform spending. Give groups a "
        "saving_rate."
    ]


def _about_optimum(plan: Plan) -> list[str]:
    if plan.method != "optimal":
        return []
    said, measured = [], plan.parameters.get("influence") or ()
    if plan.rounds > 1 and all(max(row.noise_multiplier) <= _SAME * min(row.noise_multiplier) for row in plan.groups):
        said.append("All rounds matter alike, so that optimal is uniform spending: there is nothing to gain.")
    if measured and len(measured) != plan.rounds:
        said.append(f"influence has {len(measured)} numbers and the plan {plan.rounds} rounds: it was resampled.")
    return said


def _about_budgets(plan: Plan) -> list[str]:
    said = []
    if plan.delta >= 1.0 / plan.clients:
        said.append(
            f"delta = {plan.delta:g} is at least 1/{plan.clients}, one client in all: publishing one client's data "
            "would keep that promise. It should be well below."
        )
    large = [row.group.name for row in plan.groups if row.group.budget.epsilon > MEANINGLESS]
    if large:
        said.append(f"{_named(large)}: epsilon above {MEANINGLESS:g} promises next to nothing.")
    return said


def _about_noise(plan: Plan) -> list[str]:
    said = []
    little = [row.group.name for row in plan.groups if min(row.noise_multiplier) < LITTLE]
    if little:
        said.append(f"{_named(little)}: noise_multiplier falls below {LITTLE:g}, where it hides hardly anything.")
    # The longest sum of a cohort, all at their clip norm and of one mind, against the noise of each of its coordinates.
    cohorts = zip(plan.round_noise_multiplier, plan.mean_sampling_rate, strict=True)
    ratio = min(sigma / (rate * plan.clients) for sigma, rate in cohorts)
    if ratio > 1.0:
        said.append(
            f"In every round the noise is at least {ratio:.3g} times all that a cohort can contribute: the model will "
            "learn little. More clients, larger budgets or fewer rounds may help."
        )
    if not NORMS[0] <= plan.clip_norm <= NORMS[1]:
        said.append(f"clip_norm = {plan.clip_norm:g} is unusual; noise grows with it. Usual are 0.1 to 1000.")
    return said


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"Group{'s' if len(names) > 1 else ''} {shown}{more}"
