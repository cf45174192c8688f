"""How many parameters budgets carry: the ratio of noise to signal beside real noise and updates, and its command."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from nestegg import Budget, Group, InputError, LocalTraining, Optimal, Plan, plan
from nestegg.mechanism import Lattice, share_std
from nestegg.planning.curves import Pace, pace_of
from nestegg.planning.influence import forgetting
from nestegg.planning.reaching import noise_to_signal
from tests.conftest import ANY_LENGTH, EXAMPLE, Run
from tests.federations import trained
from tests.oracles import gaussian_delta

ROUNDS, SIZE = 6, 2_000
LOCAL = LocalTraining(epochs=1, batch_size=4, learning_rate=0.3)
PACE = Pace(tuple(LOCAL.rates(ROUNDS)))
GROUPS = [
    Group("few", 10, Budget(6.0), saving_rate=0.6, transition=4),
    Group("many", 30, Budget(25.0), saving_rate=0.9, transition=2),
]


def still(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss by which nobody moves."""
    return outputs.sum() * 0.0


def pulling(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss by which everybody moves far, and in one direction."""
    return outputs.sum() * -1e3


def moved(made: Plan, loss: Any) -> Tensor:
    """How far a training takes a model that starts at zero; its clients have the same samples."""
    model = nn.Linear(SIZE, 1, bias=False)
    nn.init.zeros_(model.weight)
    clients = [(torch.ones(4, SIZE), torch.zeros(4, dtype=torch.long)) for _ in range(made.clients)]
    final, _ = trained(made, model, clients, local=LOCAL, loss=loss, seed=7, reproducible=True)
    return next(final.parameters()).detach().flatten().double()


@pytest.mark.parametrize("method", ["optimal", "spend-as-you-go"])
def test_a_training_is_as_noisy_as_the_formula_says(method: str) -> None:
    """The real mechanism, with clients that send nothing, and with clients that all pull as far as they may."""
    how = Optimal(memory=0.0) if method == "optimal" else method
    made = plan(GROUPS, ROUNDS, method=how, clip_norm=3.0, local=LOCAL)
    noise = float(torch.linalg.vector_norm(moved(made, still)))
    signal = float(moved(made, pulling).mean() * math.sqrt(SIZE))  # along the one direction
    predicted = noise_to_signal(made, SIZE, PACE, np.ones(ROUNDS))  # where nobody corrects, nothing is forgotten
    assert noise / signal == pytest.approx(predicted, rel=0.05)
    if method == "optimal":
        assert made.noise_to_signal(SIZE, local=LOCAL) == pytest.approx(predicted)


def test_noise_that_is_forgotten_counts_less() -> None:
    """Noise of the mechanism's own sampler, each round's with its weight, beside clip norms written out."""
    made = plan(GROUPS, ROUNDS, method="optimal", clip_norm=3.0, local=PACE)
    kept, stream = forgetting(2.0, PACE.learning_rate), np.random.default_rng(5)
    noise = np.zeros(SIZE)
    for t, (weight, rate) in enumerate(zip(kept, PACE.learning_rate, strict=True)):
        std = 3.0 * rate * made.round_noise_multiplier[t]
        lattice = Lattice.for_noise(std)
        drawn = lattice.step * lattice.noise(share_std(std, 40, 0), 40, SIZE, stream)
        noise += weight * drawn / 40.0
    ratio = float(np.linalg.norm(noise)) / (3.0 * sum(PACE.learning_rate))
    assert made.noise_to_signal(SIZE, local=LOCAL) == pytest.approx(ratio, rel=0.04)
    assert made.noise_to_signal(SIZE, local=LOCAL) < 0.8 * noise_to_signal(made, SIZE, PACE, np.ones(ROUNDS))


def test_it_depends_on_budgets_and_size_and_not_on_units() -> None:
    made = plan(ANY_LENGTH, 25, method="optimal", clip_norm=10.0)
    ratio = made.noise_to_signal(1_000)
    assert made.noise_to_signal(16_000) == pytest.approx(4.0 * ratio)
    assert made.noise_to_signal(round(1_000 / ratio**2)) == pytest.approx(1.0, rel=1e-3)  # the inverse
    assert plan(ANY_LENGTH, 25, method="optimal", clip_norm=0.1).noise_to_signal(1_000) == pytest.approx(ratio)
    slow = Pace(tuple(0.01 * rate for rate in pace_of(None, 25).learning_rate))
    assert made.noise_to_signal(1_000, local=slow) == pytest.approx(ratio)
    double = [Group(group.name, 2 * group.clients, group.budget) for group in ANY_LENGTH]
    assert plan(double, 25, method="optimal").noise_to_signal(4_000) == pytest.approx(ratio)
    assert plan(ANY_LENGTH, 25, method="fedavg").noise_to_signal(10**9) == 0.0


@pytest.mark.parametrize("rounds", [1, 5, 25])
def test_the_computed_schedule_has_a_closed_form(rounds: int) -> None:
    """√d · w / (N · μ): μ by the oracle, w the mean of w_t by clip norms."""
    made, rates = plan(ANY_LENGTH, rounds, method="optimal"), pace_of(None, rounds).learning_rate
    counts, budgets = zip(*((one.clients, one.budget.epsilon) for one in ANY_LENGTH), strict=True)
    each = [brentq(lambda mu, e=epsilon: gaussian_delta(mu, e) - 1e-5, 0.1, 10.0) for epsilon in budgets]
    kept = np.average(forgetting(2.0, rates), weights=rates)
    predicted = math.sqrt(1_000) * kept / (100 * np.average(each, weights=counts))
    assert made.noise_to_signal(1_000) == pytest.approx(predicted, rel=1e-6)


@pytest.mark.parametrize("size", [0, -1, 1.5, math.nan, math.inf, True, "many", 10**400])
def test_sizes_that_are_none_are_refused(size: Any) -> None:
    made = plan([Group("all", 5, Budget(5.0))], 3)
    with pytest.raises(InputError, match=r"^parameters = .* must be a whole number, at least 1\.$"):
        made.noise_to_signal(size)


def test_learning_rates_of_another_training_are_refused() -> None:
    with pytest.raises(InputError, match="local has 3 learning rates"):
        plan([Group("all", 5, Budget(5.0))], 4).noise_to_signal(10, local=[0.1, 0.1, 0.1])


def by_hand(content: dict[str, Any], size: int) -> float:
    """The ratio of a plan without sampling, from its JSON, for the learning rates and the memory of the default."""
    rates = np.array([(1.0 + math.cos(math.pi * t / content["rounds"])) / 2.0 for t in range(content["rounds"])])
    kept = np.exp(-2.0 * (rates.sum() - rates.cumsum()) / rates.sum())
    inverse = sum(g["clients"] / np.array(g["noise_multiplier"]) for g in content["groups"])
    return math.sqrt(size) * float(np.linalg.norm(kept * rates / inverse)) / float(rates.sum())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The example, by the default method."""
    text = re.sub(r"(composition|accountant|spending_rate|transition) = .*\n", "", EXAMPLE.read_text())
    path = tmp_path / "config.toml"
    path.write_text(text.replace('"spend-as-you-go"', '"optimal"').replace("rounds = 25", "rounds = 8"))
    return path


def test_the_command_says_how_much_noise_a_model_gets(run: Run, config: Path) -> None:
    done = run("plan", config, "--parameters", 4420, "--parameters", 1663370, "--parameters", 4420, "--json")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert (content["method"], content["spending_rate"]) == ("optimal", 1.0)
    assert set(content["noise_to_signal"]) == {"4420", "1663370"}
    for size, ratio in content["noise_to_signal"].items():
        assert ratio == pytest.approx(by_hand(content, int(size)))
    for ratio, size in content["parameters_at_ratio"].items():
        assert by_hand(content, size) == pytest.approx(float(ratio), rel=1e-3)
    shown = run("plan", config, "--parameters", 4420, "--parameters", 1663370)
    assert shown.code == 0
    lines = {line[:15].strip(): line[15:].split() for line in shown.out.splitlines()}
    assert lines["1,663,370"] == [f"{content['noise_to_signal']['1663370']:.3f}"]
    assert abs(int(lines["carried at 1"][0].replace(",", "")) / content["parameters_at_ratio"]["1"] - 1.0) < 0.005
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "Noise to signal" not in run("plan", config).out


def test_planners_are_compared_with_one_memory(run: Run, config: Path) -> None:
    done = run("plan", config, "--compare", "--parameters", 4420, "--json")
    ratios = {name: one["noise_to_signal"]["4420"] for name, one in json.loads(done.out).items()}
    assert ratios["optimal"] < ratios["idp-fedavg"] < ratios["exact"] < ratios["paper"]
    shown = run("plan", config, "--compare", "--parameters", 4420).out
    row = next(line.split() for line in shown.splitlines() if line.startswith(" 4,420"))
    assert row == ["4,420", *(f"{ratio:.3f}" for ratio in ratios.values())]


def test_without_noise_any_number_is_carried(run: Run, config: Path) -> None:
    config.write_text(config.read_text().replace('method = "optimal"', 'method = "fedavg"'))
    content = json.loads(run("plan", config, "--parameters", 10, "--json").out)
    assert content["noise_to_signal"] == {"10": 0.0}
    assert content["parameters_at_ratio"] == {"0.1": None, "1": None}
    assert "any" in run("plan", config, "--parameters", 10).out


@pytest.mark.parametrize("size", ["0", "-3", "1.5", "many", "", "1e3"])
def test_bad_sizes_end_with_two(size: str, run: Run, config: Path) -> None:
    refused = run("plan", config, "--parameters", 5, "--parameters", size)
    assert (refused.code, refused.out) == (2, "")
    assert "--parameters" in refused.err
