"""nestegg's accounting behind Flower's `PrivacyAccountant` protocol, an accountant for the clients of one group."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, PrivacySpent, SamplingMethod

from nestegg.accounting import Charge, RdpAccountant, compose, merged
from nestegg.accounting.rdp import RdpSpending
from nestegg.errors import InputError
from nestegg.planning import GroupPlan


class GroupAccountant:
    """What one client has spent: exact Rényi curves of the sampled Gaussian mechanism, composed.

    Flower's events count clients, so that their rates are whole numbers of clients out of all; `charge` takes any rate.
    """

    def __init__(self, config: PrivacyConfig, charges: Iterable[Charge] = ()) -> None:
        if config.sampling_method is SamplingMethod.WITHOUT_REPLACEMENT:
            raise ValueError("sampling_method = 'without-replacement': nestegg samples every client by itself.")
        self._config, self._charges = config, merged(charges)

    @classmethod
    def of(cls, row: GroupPlan, population: int, charges: Iterable[Charge] = ()) -> GroupAccountant:
        """For a group of a plan with so many clients in all."""
        budget = row.group.budget
        # Flower has no word for taking an enrolled client's data out; the bounds are the same.
        relation, method = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON
        return cls(PrivacyConfig(budget.delta, population, relation, method, budget.epsilon), charges)

    @property
    def config(self) -> PrivacyConfig:
        """What is protected, and up to which ε."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Rounds that were charged."""
        return sum(charge.rounds for charge in self._charges)

    def charge(self, sampling_rate: float, noise_multiplier: float, *, rounds: int = 1) -> None:
        """Charge rounds at any sampling rate."""
        self._charges = merged((*self._charges, Charge(sampling_rate, noise_multiplier, rounds)))

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Charge a Flower event."""
        rate, noise, rounds = self._price(event, count)
        self.charge(rate, noise, rounds=rounds)

    def get_epsilon(self, delta: float) -> float:
        """ε that is spent at a δ."""
        return float(self._spent().epsilon(delta)[0])

    def get_delta(self, epsilon: float) -> float:
        """δ that is spent at an ε."""
        return float(self._spent().delta(epsilon)[0])

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """ε that is spent, and how it was found."""
        delta, spent = self._config.target_delta if delta is None else delta, self._spent()
        order = RdpAccountant().orders[int(spent.best_order(delta)[0])] if self._charges else None
        return PrivacySpent(float(spent.epsilon(delta)[0]), delta, self.num_releases, "rdp", order)

    def would_exceed(self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether a Flower event would go over the budget; nothing is charged."""
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise ValueError("max_epsilon is given neither here nor in the configuration.")
        trial = GroupAccountant(self._config, (*self._charges, self._price(event, count)))
        return trial.get_epsilon(self._config.target_delta) > limit

    def state_dict(self) -> dict[str, object]:
        """What was charged, for JSON."""
        return {"format": "nestegg-accountant/1", "charges": [list(charge) for charge in self._charges]}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """What `state_dict` gave; ε is computed from it anew."""
        charges = state.get("charges")
        if state.get("format") != "nestegg-accountant/1" or not isinstance(charges, list):
            raise InputError("state is not that of a nestegg accountant.")
        self._charges = merged(Charge(float(q), float(sigma), int(rounds)) for q, sigma, rounds in charges)

    def _price(self, event: GaussianPrivacyEvent, count: int) -> Charge:
        if event.population_size != self._config.population_size:
            raise ValueError(f"population_size = {event.population_size} must be {self._config.population_size}.")
        sampled = self._config.sampling_method is SamplingMethod.POISSON
        return Charge(event.sample_size / event.population_size if sampled else 1.0, event.noise_multiplier, count)

    def _spent(self) -> RdpSpending:
        return compose(RdpAccountant(), self._charges)
