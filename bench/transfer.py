"""Does a memory that was measured on one dataset serve another? Measured on MNIST, Fashion-MNIST and digits.

    python -m bench.transfer --data DIR --keep FOLDER

DIR holds MNIST and FashionMNIST, as `nestegg data get` writes them; measurements are kept in FOLDER as they come.

Each setting is the configuration of `results/influence`, with its clip norm and its budgets, at a learning rate of 0.1.
Its curve w_t is measured on its own dataset with two seeds, each of which is the truth in turn, so that their
difference says what is chance, on the other dataset, and on digits. Then follows what it costs to plan by anything but
the truth: the variance of noise in the final model, beside that of the schedule by the truth, with everybody in every
round. That is the planner's own objective, not an accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import nestegg
from nestegg.configuration.config import Config, changed, load_config
from nestegg.configuration.participants import make_groups
from nestegg.planning.curves import Pace
from nestegg.planning.planners import Planner
from nestegg.planning.reaching import reaching_noise
from nestegg.runs.influence import PublicTraining

SETTINGS = ("mnist-features", "fmnist-features", "mnist-mlp", "fmnist-mlp")
OTHER = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
RATE, SEED, ANOTHER_SEED = 0.1, 100, 101
MEMORIES = (0.0, 1.0, 2.0, 4.0)
CONFIGURATIONS = Path(__file__).parents[1] / "results" / "influence"


def config_of(setting: str, seed: int) -> Config:
    """Return what is trained, in one process."""
    config = load_config(CONFIGURATIONS / f"{setting}.toml")
    return changed(config, "training", learning_rate=RATE, seed=seed, workers=1)


def costs(
    truth: nestegg.Influence, others: Mapping[str, nestegg.Influence], pace: Pace, groups: list[nestegg.Group]
) -> dict[str, float]:
    """Return the variance of noise in the final model by other curves, by κ and evenly spent, beside the least."""

    def variance(planner: Planner) -> float:
        rounds = len(truth.influence)
        made = nestegg.plan(groups, rounds, method=planner, spending_rate=1.0, accountant="gaussian", local=pace)
        return float(reaching_noise(made, pace, np.array(truth.influence)).sum())

    planners: dict[str, Planner] = {name: nestegg.Optimal(influence=one.influence) for name, one in others.items()}
    planners |= {f"κ = {memory:g}": nestegg.Optimal(memory=memory) for memory in MEMORIES}
    planners |= {"uniform": nestegg.Uniform()}
    least = variance(nestegg.Optimal(influence=truth.influence))
    return {name: variance(planner) / least for name, planner in planners.items()}


def stated(found: nestegg.Influence, t: int) -> str:
    """Return w_t with its standard error; where it cannot be told from 0, w_t is that error."""
    kept, high = found.influence[t], found.high[t]
    return f"{kept:.2f} ± {high - kept:.2f}" if found.low[t] > 0.0 else f"{kept:.2f} (error)"


def report(setting: str, data: Path, keep: Path) -> None:
    """Measure the curves of a setting, and print them with what they cost."""
    own = config_of(setting, SEED).federation.dataset
    sources = {"own": (own, SEED), "another seed": (own, ANOTHER_SEED)}
    sources |= {name: (name, SEED) for name in (OTHER[own], "digits")}
    found, pace = {}, Pace((1.0,))
    for name, (public, seed) in sources.items():
        federation = PublicTraining(config_of(setting, seed), public, data).federation()
        pace = Pace(federation.rates, federation.mechanics.clip_unit)
        one = nestegg.measure_influence(federation, keep=keep / f"{setting}.{public}.{seed}.part")
        shown = ", ".join(stated(one, t - 1) for t in one.measured)
        print(f"{setting} on {public}, seed {seed}: {shown} at rounds {one.measured}, κ {one.memory:.1f}", flush=True)
        found[name] = one
    groups = list(make_groups(config_of(setting, SEED)))
    for truth in ("own", "another seed"):
        others = {name: one for name, one in found.items() if name != truth}
        shown = ", ".join(f"{name} {cost:.3f}" for name, cost in costs(found[truth], others, pace, groups).items())
        print(f"  beside {truth}: {shown}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True, help="folder for measurements, by which it goes on")
    given = parser.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    for setting in SETTINGS:
        report(setting, given.data, given.keep)


if __name__ == "__main__":
    main()
