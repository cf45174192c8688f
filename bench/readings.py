"""One more reading of the paper: every layer clipped to the whole norm c. What ε would its noise then stand for?

python -m bench.readings

A client's update then moves the sum by c √m for m layers, and not by c: noise of σ c is noise of σ/√m times what one
client can do. The plan is that of IDP-FedAvg, whose noise is the same in every round; ε is composed by dp_accounting,
by Rényi orders and by privacy loss distributions.
"""

from __future__ import annotations

import logging
import math
from collections import Counter

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, PrivacyAccountant
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import nestegg
from nestegg import Budget, Group, GroupPlan, Uniform

DELTA = 1e-5
BUDGETS = {"FMNIST": (10.0, 20.0, 30.0), "MNIST": (10.0, 15.0, 20.0)}
LAYERS = {1: "as it is read here", 4: "each of four layers", 8: "each of eight tensors"}


def epsilon(row: GroupPlan, layers: int, accountant: PrivacyAccountant) -> float:
    """Return what a group spends in all rounds if every layer is clipped to the whole norm."""
    for (rate, sigma), times in Counter(zip(row.sampling_rate, row.noise_multiplier, strict=True)).items():
        noise = GaussianDpEvent(sigma / math.sqrt(layers))
        accountant.compose(PoissonSampledDpEvent(rate, noise), times)
    return float(accountant.get_epsilon(DELTA))


def main() -> None:
    """Print a table of ε by group and reading."""
    logging.getLogger("absl").setLevel(logging.ERROR)  # Rényi orders that do not converge are left out
    print("| budgets | clipped to c | ε by Rényi | ε by PLD |\n|---|---|---:|---:|")
    for name, budgets in BUDGETS.items():
        shares = zip("abc", (34, 43, 23), budgets, strict=True)
        groups = [Group(who, clients, Budget(budget, DELTA)) for who, clients, budget in shares]
        plan = nestegg.plan(groups, rounds=25, method=Uniform(), spending_rate=0.9, clip_norm=250.0)
        for layers, reading in LAYERS.items():
            found = [
                ", ".join(f"{epsilon(row, layers, kind()):.1f}" for row in plan.groups)
                for kind in (RdpAccountant, PLDAccountant)
            ]
            print(f"| {name} {budgets} | {reading} | {' | '.join(found)} |")


if __name__ == "__main__":
    main()
