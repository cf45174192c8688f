"""Adult by measures that the majority class does not win: `python -m bench.adult_measures [--data DIR]`.

Three of four people earn less than 50,000 dollars, so a model that always says so is right in 76 % of cases. Its
balanced accuracy and its area under the curve (AUC) are 50 %. Trains the two recipes and their FedAvg on ten seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from torch import Tensor

import nestegg
from nestegg.configuration.config import Config, changed, load_config
from nestegg.configuration.participants import with_method
from nestegg.runs.configured import new_simulation
from nestegg.training import Evaluation
from nestegg.training.evaluation import predictions

RECIPES = Path(__file__).parents[1] / "examples" / "recipes"
ROWS = {"adult": "ε = 10, 20, 30", "adult-strict": "ε = 2, 5, 10"}
SEEDS = range(10)


def balanced_accuracy(outputs: Tensor, labels: Tensor) -> float:
    """Return the mean, over the labels that occur, of the share of right answers among samples of one label.

    >>> import torch
    >>> balanced_accuracy(torch.tensor([[-1.0], [-2.0], [3.0], [-1.0]]), torch.tensor([0, 0, 1, 1]))
    0.75
    """
    right = predictions(outputs) == labels
    return float(np.mean([float(right[labels == label].float().mean()) for label in labels.unique()]))


def area_under_curve(outputs: Tensor, labels: Tensor) -> float:
    """Return how often a sample of label 1 has a larger output than one of label 0; half counts where they are equal.

    By ranks (Mann and Whitney). Not a number where one of the labels does not occur.

    >>> import torch
    >>> area_under_curve(torch.tensor([[-1.0], [-2.0], [3.0], [-1.0]]), torch.tensor([0, 0, 1, 1]))
    0.875
    """
    is_one = labels.numpy() == 1
    ones, zeros = int(is_one.sum()), int((~is_one).sum())
    if not ones or not zeros:
        return float("nan")
    ranks = rankdata(outputs.detach().double().numpy().reshape(-1))
    return float((ranks[is_one].sum() - ones * (ones + 1) / 2) / (ones * zeros))


METRICS = {"balanced": balanced_accuracy, "auc": area_under_curve}


def measured(config: Config) -> tuple[float, float, float]:
    """Train a configuration; return accuracy, balanced accuracy and AUC of its last model, in percent."""
    federation = new_simulation(config, "measures")[0].federation
    assert federation.test is not None, "Adult has public test data"
    test = Evaluation(federation.test.inputs, federation.test.targets, metrics=METRICS)
    found = test.measured(nestegg.train(federation)[0], federation.local.loss)
    return found.accuracy or 0.0, 100.0 * found.metrics["balanced"], 100.0 * found.metrics["auc"]


def table(data: str | None = None, seeds: Sequence[int] = SEEDS) -> Iterator[str]:
    """Yield the lines of the table: means and standard deviations over seeds."""
    yield "| | accuracy | balanced accuracy | AUC |"
    yield "|---|---|---|---|"
    for name, budgets in ROWS.items():
        recipe = changed(load_config(RECIPES / f"{name}.toml"), "federation", data=data)
        columns = {f"`{name}`, {budgets}": recipe, f"FedAvg with the values of `{name}`": with_method(recipe, "fedavg")}
        for label, config in columns.items():
            found = np.array([measured(changed(config, "training", seed=seed)) for seed in seeds])
            pairs = zip(found.mean(axis=0), found.std(axis=0, ddof=1), strict=True)
            yield f"| {label} | " + " | ".join(f"{mean:.1f} ± {std:.1f}" for mean, std in pairs) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--data", help="folder of Adult")
    for line in table(parser.parse_args().data):
        print(line, flush=True)


if __name__ == "__main__":
    main()
