"""What every accountant must do, and what is particular to each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant
from opacus.accountants.analysis.rdp import get_privacy_spent

from nestegg.accounting import ORDERS, Charge, PldAccountant, RdpAccountant, compose, smallest_noise

from .oracles import epsilon_from_rdp

DELTA = 1e-5


class AccountantContract:
    """The behaviour that planners rely on; each accountant's tests inherit it."""

    accountant: Any
    rounding: float  # how much the same releases may differ when they are composed in another way

    def epsilon(self, *charges: Charge, delta: float = DELTA) -> float:
        return float(compose(self.accountant, charges).epsilon(delta)[0])

    def test_nothing_costs_nothing(self) -> None:
        assert self.epsilon() == 0.0
        assert self.epsilon(Charge(0.0, 1.0, 100)) == 0.0

    def test_composition_is_commutative_and_counts(self) -> None:
        a, b = Charge(0.5, 2.5), Charge(0.9, 2.0)
        assert self.epsilon(a, b) == pytest.approx(self.epsilon(b, a), rel=self.rounding)
        assert self.epsilon(a, a, b, a) == pytest.approx(self.epsilon(Charge(0.5, 2.5, 3), b), rel=self.rounding)

    def test_more_rounds_cost_more_and_more_noise_costs_less(self) -> None:
        assert self.epsilon(Charge(0.5, 2.0, 5)) < self.epsilon(Charge(0.5, 2.0, 6))
        assert self.epsilon(Charge(0.5, 2.1, 5)) < self.epsilon(Charge(0.5, 2.0, 5))
        assert self.epsilon(Charge(0.4, 2.0, 5)) < self.epsilon(Charge(0.5, 2.0, 5))

    def test_delta_and_epsilon_are_inverse(self) -> None:
        spent = compose(self.accountant, [Charge(0.5, 2.5, 12), Charge(0.9, 2.0, 13)])
        epsilon = float(spent.epsilon(DELTA)[0])
        assert float(spent.delta(epsilon)[0]) == pytest.approx(DELTA, rel=1e-3)
        assert float(spent.delta(2 * epsilon)[0]) < DELTA

    def test_epsilon_never_falls_below_zero(self) -> None:
        assert self.epsilon(Charge(0.01, 50.0, 1), delta=0.9) == 0.0
        assert self.epsilon(Charge(0.01, 50.0, 1), delta=0.1) == 0.0

    def test_rows_are_independent(self) -> None:
        batch = self.accountant.spend(np.array([0.5, 0.9]), np.array([2.0, 3.0])) * np.array([3, 5])
        assert batch.epsilon(DELTA) == pytest.approx(
            [self.epsilon(Charge(0.5, 2.0, 3)), self.epsilon(Charge(0.9, 3.0, 5))], rel=self.rounding
        )
        swapped = batch.replaced(np.array([0]), batch.rows(np.array([1])))
        assert swapped.epsilon(DELTA)[0] == batch.epsilon(DELTA)[1]

    @pytest.mark.parametrize("target", [1.0, 10.0, 30.0])
    def test_calibration_is_safe_and_tight(self, target: float) -> None:
        noise = float(smallest_noise(self.accountant, q=0.9, count=25, target=target, delta=DELTA)[0])
        spent = self.epsilon(Charge(0.9, noise, 25))
        assert target * (1.0 - 2.0 * self.accountant.rtol) <= spent <= target

    def test_a_target_that_no_noise_meets_is_infinite_noise(self) -> None:
        assert np.isinf(smallest_noise(self.accountant, q=0.9, count=1000, target=1e-6, delta=DELTA)[0])


class TestRdp(AccountantContract):
    accountant = RdpAccountant()
    rounding = 1e-12

    def test_the_grid_closes_the_gaps_of_opacus(self) -> None:
        assert {11.0, 64.0} < set(ORDERS)
        assert {1.0 + x / 10.0 for x in range(1, 100)} | {float(k) for k in range(12, 64)} < set(ORDERS)
        assert ORDERS[-1] >= 512.0
        assert list(ORDERS) == sorted(set(ORDERS))

    @pytest.mark.parametrize("epsilon", [0.002, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    @pytest.mark.parametrize("rounds", [1, 25, 1000])
    def test_the_best_order_is_never_the_last(self, epsilon: float, rounds: int) -> None:
        noise = smallest_noise(self.accountant, q=0.9, count=rounds, target=epsilon, delta=DELTA)
        best = (self.accountant.spend(0.9, noise) * rounds).best_order(DELTA)[0]
        assert 0 < best < len(ORDERS) - 1

    @settings(deadline=None, max_examples=60)
    @given(
        charges=st.lists(
            st.tuples(st.floats(0.01, 1.0), st.floats(0.5, 50.0), st.integers(1, 50)), min_size=1, max_size=5
        ),
        delta=st.floats(1e-12, 0.5),
    )
    def test_conversion_is_the_lemma(self, charges: list[tuple[float, float, int]], delta: float) -> None:
        spent = compose(self.accountant, [Charge(*charge) for charge in charges])
        assert spent.epsilon(delta)[0] == pytest.approx(
            epsilon_from_rdp(list(ORDERS), spent.values[0].tolist(), delta), rel=1e-12
        )

    def test_agrees_with_opacus_where_its_grid_suffices(self) -> None:
        opacus = [1.0 + x / 10.0 for x in range(1, 100)] + [float(k) for k in range(12, 64)]
        spent = compose(RdpAccountant(tuple(opacus)), [Charge(0.5, 2.5, 12), Charge(0.9, 2.0, 13)])
        theirs, _ = get_privacy_spent(orders=opacus, rdp=spent.values[0], delta=DELTA)
        assert spent.epsilon(DELTA)[0] == pytest.approx(theirs, rel=1e-12)

    def test_opacus_goes_below_zero_at_a_large_delta(self) -> None:
        spent = compose(self.accountant, [Charge(0.01, 50.0)])
        theirs, _ = get_privacy_spent(orders=list(ORDERS), rdp=spent.values[0], delta=0.5)
        assert theirs < 0.0 == spent.epsilon(0.5)[0]

    def test_reference(self) -> None:
        assert self.epsilon(Charge(0.9, 2.4255, 25)) == pytest.approx(9.994, abs=5e-4)

    @settings(deadline=None, max_examples=40)
    @given(
        q=st.floats(0.001, 1.0), count=st.integers(1, 2000), target=st.floats(0.05, 200.0), delta=st.floats(1e-9, 1e-2)
    )
    def test_calibration_anywhere(self, q: float, count: int, target: float, delta: float) -> None:
        noise = smallest_noise(self.accountant, q, count, target, delta)
        spent = (self.accountant.spend(q, noise) * count).epsilon(delta)[0]
        assert spent <= target
        assert spent >= target * (1.0 - 2e-9) or noise[0] == pytest.approx(0.1)

    def test_calibration_of_many_rows_is_that_of_each(self) -> None:
        targets = np.geomspace(0.1, 100.0, 12)
        together = smallest_noise(self.accountant, 0.7, 40, targets, DELTA)
        alone = [smallest_noise(self.accountant, 0.7, 40, target, DELTA)[0] for target in targets]
        assert together == pytest.approx(alone, rel=1e-8)


class TestPld(AccountantContract):
    accountant = PldAccountant()
    rounding = 1e-5

    def test_reference(self) -> None:
        assert self.epsilon(Charge(0.9, 2.4255, 25)) == pytest.approx(9.289, abs=5e-4)

    def test_is_tighter_than_rdp_and_agrees_with_prv(self) -> None:
        """Opacus' PRV accountant is a third, independent implementation of the same quantity."""
        charges = [Charge(0.5, 2.5, 12), Charge(0.9, 2.0, 13)]
        prv = PRVAccountant()
        prv.history = [(sigma, q, count) for q, sigma, count in charges]
        ours = self.epsilon(*charges)
        assert ours < compose(RdpAccountant(), charges).epsilon(DELTA)[0]
        assert ours == pytest.approx(prv.get_epsilon(DELTA, eps_error=0.01), abs=0.02)

    @pytest.mark.parametrize(("q", "sigma", "rounds"), [(0.9, 2.4255, 25), (0.5, 20.0, 400), (0.01, 1.0, 400)])
    def test_the_grid_adapts_to_weak_releases(self, q: float, sigma: float, rounds: int) -> None:
        chosen = PldAccountant.for_releases(q, sigma)
        fine = PldAccountant(chosen.interval / 8)
        coarse, exact = (float(compose(a, [Charge(q, sigma, rounds)]).epsilon(DELTA)[0]) for a in (chosen, fine))
        assert exact <= coarse <= exact * 1.001
