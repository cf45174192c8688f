"""What a run says of itself: a line a round, sentences for its user, and where every group stands."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from nestegg.ledger import Account
from nestegg.training import RoundReport


def line_of(report: RoundReport, stamp: dict[str, str]) -> str:
    """Return a report as a line of JSON, without what is private; what is infinite is null."""
    content = {name: value for name, value in asdict(report).items() if not name.startswith("private_")}
    content = {name: value for name, value in content.items() if not _is_hidden(name, value)}
    for name in ("clip_norm", "noise_std", "loss"):
        content[name] = _finite(content[name])
    content["metrics"] = {name: _finite(value) for name, value in report.metrics.items()}
    content["side"] = {name: _finite(value) for name, value in report.side.items()}
    for name in ("metrics", "side"):
        if not content[name]:
            del content[name]
    content["epsilon_spent"] = {name: _finite(spent) for name, spent in report.epsilon_spent.items()}
    return json.dumps({**content, **stamp}, allow_nan=False)


def warnings(report: RoundReport) -> list[str]:
    """What a user should know of a round, from updates: in simulations alone, as others must not look at them."""
    if not (broken := report.simulation_only_broken_updates):
        return []
    return [f"Round {report.round} (a simulation may know it): {broken} updates failed or were not finite."]


def standing_of(run: str, account: Account | None) -> dict[str, float | str | None]:
    """Return a group's account as its tightest member has it: budget, spent besides, here, in all, and left."""
    if account is None:  # without noise there is none
        names = ("epsilon", "epsilon_earlier", "epsilon_here", "epsilon_spent", "epsilon_left", "account")
        return dict.fromkeys(names)
    return {
        "epsilon": account.budget.epsilon,
        "epsilon_earlier": account.without(run),
        "epsilon_here": account.within(run),
        "epsilon_spent": account.epsilon,
        "epsilon_left": account.left,
        "account": account.rule.sentence,
    }


def _is_hidden(name: str, value: Any) -> bool:
    """Whether a simulation alone would know it, and this run is none."""
    return name.startswith("simulation_only_") and value is None


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
