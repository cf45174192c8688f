import numpy as np
import pytest
from scipy.stats import norm

from nestegg import Budget, Group, InputError, plan
from nestegg.accounting import Charge
from nestegg.planning.certainty import certainty, certainty_in_words, certainty_of, epsilon_of_certainty


def test_the_best_attacker_of_real_noise_is_right_just_as_often_as_is_said() -> None:
    (row,) = plan([Group("all", 10, Budget(4.0))], 8).groups
    sigma, generator = np.array(row.noise_multiplier), np.random.default_rng(7)
    there = generator.integers(0, 2, 200_000)
    seen = there[:, None] + sigma * generator.standard_normal((there.size, sigma.size))
    ratio = ((seen - 0.5) / sigma**2).sum(axis=1)  # the likelihood ratio's logarithm: no test is better
    right = float(((ratio > 0.0) == there).mean())
    assert certainty(row) == pytest.approx(right, abs=4.0 / np.sqrt(there.size))
    assert certainty(row) == pytest.approx(norm.cdf(np.sqrt((sigma**-2.0).sum()) / 2.0), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 10.0])
def test_sampled_clients_are_bounded_at_once_and_known_by_privacy_loss_distributions(epsilon: float) -> None:
    made = plan([Group("all", 100, Budget(epsilon))], 10, method="idp-fedavg", spending_rate=0.3)
    (row,) = made.groups
    assert 0.5 < certainty(row, by_pld=True) < certainty(row)
    assert certainty(row) <= 1.0 - (1.0 - 1e-5) / (1.0 + np.exp(row.epsilon_spent[-1]))
    one = [Charge(0.3, sigma) for sigma in row.noise_multiplier]
    assert certainty(row, by_pld=True) >= 0.5 + max(0.3 * (norm.cdf(0.5 / c.noise_multiplier) - 0.5) for c in one)


def test_of_two_sampled_rounds_it_is_the_distance_of_both_worlds_by_integration() -> None:
    rates, noise = (0.3, 0.6), (0.8, 1.1)
    xs = np.linspace(-8.0, 9.0, 3_401)
    without = [norm.pdf(xs, 0.0, sigma) for sigma in noise]
    there = [
        (1.0 - q) * one + q * norm.pdf(xs, 1.0, sigma) for q, sigma, one in zip(rates, noise, without, strict=True)
    ]
    gap = np.abs(np.outer(*there) - np.outer(*without)).sum() * (xs[1] - xs[0]) ** 2
    charges = tuple(Charge(q, sigma) for q, sigma in zip(rates, noise, strict=True))
    assert certainty_of(charges, 1e-5) == pytest.approx(0.5 + gap / 4.0, abs=2e-4)
    assert certainty_of(charges, 1e-5) >= 0.5 + gap / 4.0 - 1e-6
    alone = certainty_of(charges[:1], 1e-5)
    assert alone == pytest.approx(0.5 + 0.3 * (norm.cdf(0.5 / 0.8) - 0.5), abs=1e-4)
    assert certainty_of((), 1e-5) == 0.5


def test_without_noise_everything_may_be_found_out() -> None:
    (row,) = plan([Group("all", 10, Budget(4.0))], 3, method="fedavg").groups
    assert certainty(row) == 1.0
    assert "for certain" in certainty_in_words(1.0)


def test_the_other_way_round_gives_the_certainty_back() -> None:
    for right in (0.55, 0.75, 0.95):
        (row,) = plan([Group("all", 10, Budget(epsilon_of_certainty(right, 1e-5)))], 5).groups
        assert certainty(row) == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize("right", [0.5, 1.0, float("nan"), -1.0])
def test_a_certainty_that_nobody_can_have_is_refused(right: float) -> None:
    with pytest.raises(InputError, match="certainty = "):
        epsilon_of_certainty(right, 1e-5)
