"""Does a memory that was measured on one dataset serve another? Measured for two networks on MNIST and Fashion-MNIST.

    python -m bench.transfer --data DIR       DIR holds MNIST and FashionMNIST, as `nestegg data get` writes them

For each network and dataset the curve w_t is measured, and then what it costs to plan by another curve than one's own:
the variance of noise in the final model, beside that of the schedule by the dataset's own curve.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import nestegg
from nestegg.accounting import Array
from nestegg.configuration.config import Config, Privacy, Training
from nestegg.configuration.config import FederationTable as Clients
from nestegg.configuration.config import GroupTable as Budgets
from nestegg.configuration.config import Model as Network
from nestegg.planning.curves import Pace
from nestegg.planning.planners import Planner
from nestegg.planning.reaching import reaching_noise
from nestegg.runs.configured import public_federation

DATASETS = ("mnist", "fashion-mnist")
RATES = {"linear": 0.02, "mlp": 0.05}  # learning rates
ROUNDS = 25
GROUPS = [
    nestegg.Group(name, n, nestegg.Budget(e)) for name, n, e in (("a", 34, 10.0), ("b", 43, 20.0), ("c", 23, 30.0))
]


def config_of(network: str) -> Config:
    """One hundred clients, Dirichlet 0.1, one local epoch in batches of 50, annealed learning rates, seed 100."""
    return Config(
        federation=Clients(dataset="mnist", clients=100),
        model=Network(name=network),
        training=Training(rounds=ROUNDS, local_epochs=1, batch_size=50, learning_rate=RATES[network], seed=100),
        privacy=Privacy(groups=[Budgets(name="all", epsilon=10.0, share=1.0)]),
    )


def cost(planner: Planner, kept: Array, pace: Pace) -> float:
    """Variance of noise in a final model that keeps a share w_t of each round's noise."""
    made = nestegg.plan(GROUPS, ROUNDS, method=planner, spending_rate=1.0, accountant="gaussian", local=pace)
    return float(reaching_noise(made, pace, kept).sum())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    for network in RATES:
        curves, pace = {}, Pace((1.0,))
        for dataset in DATASETS:
            federation = public_federation(config_of(network), dataset, data)
            pace = Pace(federation.rates)
            found = nestegg.measure_influence(federation)
            curves[dataset] = found.influence
            shown = ", ".join(f"{found.influence[t - 1]:.2f}" for t in found.measured)
            print(f"{network} on {dataset}: w_t = {shown} at rounds {found.measured}, nearest κ {found.memory:.1f}")
        for dataset in DATASETS:
            kept = np.maximum(np.array(curves[dataset]), 0.0)
            own = cost(nestegg.Optimal(influence=curves[dataset]), kept, pace)
            others: dict[str, Planner] = {
                f"the curve of {other}": nestegg.Optimal(influence=curves[other]) for other in DATASETS
            }
            others |= {f"κ = {memory:g}": nestegg.Optimal(memory=memory) for memory in (0.0, 2.0, 4.0)}
            others |= {"uniform": nestegg.Uniform()}
            costs = ", ".join(f"{name} {cost(one, kept, pace) / own:.3f}" for name, one in others.items())
            print(f"  {dataset}: {costs}", flush=True)


if __name__ == "__main__":
    main()
