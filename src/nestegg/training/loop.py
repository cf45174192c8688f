"""The one training loop (Algorithm 2): a method is a plan, and a round is a function from state to state."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nestegg.checks import one_of, whole
from nestegg.errors import InputError
from nestegg.mechanism import CLIPPINGS, MAX_COHORT, Lattice, Layout, share_std
from nestegg.planning import Plan, check_plan
from nestegg.randomness import Purpose, Randomness
from nestegg.training.adaptive import AdaptiveClipping
from nestegg.training.engines import make_engine, pooled_first, worker_count
from nestegg.training.local import (
    LocalTraining,
    Loss,
    Samples,
    channels_last,
    convolves,
    default_loss,
    predictions,
)
from nestegg.training.samples import as_samples, check_fit
from nestegg.training.workers import Clipping, Workers

CLIP_UNITS = ("gradient", "update")
_EVALUATED = 500  # test samples at a time


@dataclass(frozen=True)
class Mechanics:
    """How the plan's clip norms apply to updates.

    Attributes:
        clipping: per-layer clips each of the m layers to c_n^t/√m, flat the whole to c_n^t.
        clip_unit: gradient reads clip norms as norms of the accumulated gradient, the update divided by λ_t;
            update reads them as norms of the update itself.
        colluders: clients against whose joint knowledge of their own noise the guarantee shall hold.
    """

    clipping: str = "per-layer"
    clip_unit: str = "gradient"
    colluders: int = 0

    def __post_init__(self) -> None:
        one_of("clipping", self.clipping, CLIPPINGS)
        one_of("clip_unit", self.clip_unit, CLIP_UNITS)
        whole("colluders", self.colluders, 0)


@dataclass(frozen=True, eq=False)
class State:
    """All that a round hands to the next.

    Attributes:
        round: rounds that are done.
        model: trainable parameters as one vector.
        clip_norm: c^t of adaptive clipping; the plan's c otherwise.
        velocity: server momentum of adaptive clipping.
    """

    round: int
    model: Tensor
    clip_norm: float
    velocity: Tensor


@dataclass(frozen=True)
class RoundReport:
    """What is known after a round.

    Who was sampled is a secret of the mechanism, so are the cohort's size, how many updates were not finite, and how
    long the round took. The first two are None unless the run is reproducible, and then not for release anyway; the
    third is for the eyes of whoever runs it, and never in a file that may be released.
    """

    round: int
    accuracy: float | None
    loss: float | None
    simulation_only_cohort_size: int | None
    simulation_only_broken_updates: int | None
    private_seconds: float
    epsilon_spent: dict[str, float]
    clip_norm: float
    noise_std: float
    learning_rate: float


class Federation:
    """A plan, clients and a model, ready to train.

    Args:
        plan: the method.
        model: any module; it is not changed.
        clients: one dataset, or one (inputs, labels) pair, for each client, in the order of the plan's groups; a client
            without data contributes zero.
        training: what clients do.
        mechanics: how clip norms apply.
        test: public (inputs, labels) to measure accuracy on.
        randomness: seed, and whether secrets follow from it too.
        engine: auto, loop or dense.
        loss: of outputs and labels; cross entropy by default.
        adaptive: controller of the method adaptive-clipping.
        workers: processes in which clients train, by default as pays off; they change no result.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        clients: Sequence[Any],
        training: LocalTraining,
        mechanics: Mechanics,
        test: tuple[Tensor, Tensor] | None = None,
        randomness: Randomness | None = None,
        engine: str = "auto",
        loss: Loss = default_loss,
        adaptive: AdaptiveClipping | None = None,
        workers: int | None = None,
    ) -> None:
        if plan.clients > MAX_COHORT:
            raise InputError(f"the plan has {plan.clients} clients; sums are exact for up to {MAX_COHORT} of them.")
        model = copy.deepcopy(model)
        self.plan, self.training, self.mechanics, self.test, self.loss = plan, training, mechanics, test, loss
        self.randomness = randomness or Randomness(seed=0, reproducible=False)
        self.adaptive = (adaptive or AdaptiveClipping()) if plan.about.learns_clip_norm else None
        check_plan(plan)
        samples, self.without_data = as_samples(clients)
        if len(samples) != plan.clients:
            raise InputError(f"clients has {len(samples)} datasets; the plan is for {plan.clients} clients.")
        if mechanics.colluders >= plan.clients:
            raise InputError(f"colluders = {mechanics.colluders} must be fewer than the {plan.clients} clients.")
        self.layout = Layout.of(model)
        if not self.layout.size:
            raise InputError("model has no trainable parameters.")
        check_fit(model, samples, loss)
        if self.adaptive is not None:
            self.adaptive.check(plan)
        self._check_lattices()
        self.model, self.convolves = pooled_first(model), convolves(model)
        self.engine, self.why = make_engine(engine, model, samples, training, self.randomness, loss)
        taken = training.epochs * sum(len(y) for _, y in samples) * float(np.mean(plan.mean_sampling_rate))
        count = worker_count(workers, self.engine, taken, self.layout.size, str(samples[0][0].device))
        self.workers = Workers(self.engine, count, self.layout.size)
        self.group = np.repeat(np.arange(len(plan.groups)), [row.group.clients for row in plan.groups])

    def start(self) -> State:
        """The state before the first round."""
        vector = self.layout.flatten(self.model)
        return State(0, vector, self.plan.clip_norm, torch.zeros_like(vector))

    def step(self, state: State, absent: Collection[int] = ()) -> tuple[State, RoundReport]:
        """One round, and how good its model is on the public test data; see `round`."""
        started = time.perf_counter()
        state, report = self.round(state, absent)
        accuracy, loss = self.evaluate(state.model)
        return state, replace(report, accuracy=accuracy, loss=loss, private_seconds=time.perf_counter() - started)

    def round(self, state: State, absent: Collection[int] = ()) -> tuple[State, RoundReport]:
        """One round: sample, train, clip, noise, sum, update (Algorithm 2, lines 4 to 9).

        Args:
            state: after the round before.
            absent: clients who have withdrawn. They are never sampled, their shares of noise are made up, and the
                denominator stays the plan's.
        """
        t, plan = state.round, self.plan
        rate = self.training.rate(t + 1, plan.rounds)
        unit = self._unit(t)
        expected = plan.mean_sampling_rate[t] * plan.clients
        norms, noise_std = self._norms_and_noise(state, t, expected)
        share = share_std(noise_std * unit, plan.clients, self.mechanics.colluders)
        lattice = Lattice.for_noise(share * math.sqrt(plan.clients)) if share else None
        layers = self.layout.layers if self.mechanics.clipping == "per-layer" else None
        clipping = Clipping(norms * unit, layers, lattice.step if lattice else 0.0)

        cohort = self.cohort(t + 1)
        working = [client for client in cohort if client not in absent and client not in self.without_data]
        total = torch.zeros_like(state.model, dtype=torch.float64)
        broken, bits = 0, 0.0
        for part in self.workers.sums(state.model, working, t + 1, rate, clipping):
            total += part.total
            bits += part.bits
            broken += part.broken
        if lattice is not None:  # the shares of all: of those who took part, and of those for whom the server makes up
            stream = self.randomness.stream(Purpose.NOISE, t + 1)
            total += torch.from_numpy(lattice.noise(share, plan.clients, len(total), stream)).to(total.device)
            total *= lattice.step  # exact: a power of two

        update = (total / expected).to(state.model.dtype)
        clip_norm, velocity = state.clip_norm, state.velocity
        if self.adaptive is not None:
            stream = self.randomness.stream(Purpose.BITS, t + 1)
            sigma = plan.round_noise_multiplier[t]
            clip_norm = self.adaptive.next_norm(clip_norm, bits, sigma, expected, stream)
            velocity = self.adaptive.server_momentum * velocity + update
            update = self.adaptive.server_rate * velocity
        report = RoundReport(
            round=t + 1,
            accuracy=None,
            loss=None,
            simulation_only_cohort_size=len(cohort) if self.randomness.reproducible else None,
            simulation_only_broken_updates=broken if self.randomness.reproducible else None,
            private_seconds=0.0,
            epsilon_spent={row.group.name: row.epsilon_spent[t] for row in plan.groups},
            clip_norm=state.clip_norm * unit,
            noise_std=share * math.sqrt(plan.clients) / expected,
            learning_rate=rate,
        )
        return State(t + 1, state.model + update, clip_norm, velocity), report

    def cohort(self, round_: int) -> list[int]:
        """Draw the clients of a round: each by itself, with its own rate (Poisson). An empty cohort is valid."""
        rates = np.array([row.sampling_rate[round_ - 1] for row in self.plan.groups])[self.group]
        draws = self.randomness.stream(Purpose.COHORT, round_).random(self.plan.clients)
        return [int(client) for client in np.flatnonzero(draws < rates)]

    def evaluate(self, vector: Tensor, samples: Samples | None = None) -> tuple[float | None, float | None]:
        """Accuracy in percent, where targets are classes, and mean loss, on the public test data or other samples."""
        samples = samples or self.test
        if samples is None:
            return None, None
        self.layout.load(self.model, vector)
        self.model.eval()
        x, y = samples
        right, loss = 0, 0.0
        with torch.no_grad():
            for start in range(0, len(y), _EVALUATED):
                inputs, labels = x[start : start + _EVALUATED], y[start : start + _EVALUATED]
                outputs = self.model(channels_last(inputs) if self.convolves else inputs)
                right += int((predictions(outputs) == labels).sum())
                loss += float(self.loss(outputs, labels)) * len(labels)
        return None if y.is_floating_point() else 100.0 * right / len(y), loss / len(y)

    def _unit(self, t: int) -> float:
        return self.training.rate(t + 1, self.plan.rounds) if self.mechanics.clip_unit == "gradient" else 1.0

    def _check_lattices(self) -> None:
        """Refuse noise that has no lattice before any round is charged; a learnt norm is known for the first."""
        plan = self.plan
        if not plan.is_private:
            return
        noise = plan.round_noise_multiplier
        if self.adaptive is not None:
            noise = (self.adaptive.noise_of_updates(noise[0], plan.mean_sampling_rate[0] * plan.clients),)
        for t, sigma in enumerate(noise):
            share = share_std(plan.clip_norm * sigma * self._unit(t), plan.clients, self.mechanics.colluders)
            Lattice.for_noise(share * math.sqrt(plan.clients))

    def _norms_and_noise(self, state: State, t: int, expected: float) -> tuple[np.ndarray[Any, Any], float]:
        """Every client's clip norm and the total noise c σ^t, before the unit of clipping."""
        if self.adaptive is not None:
            sigma = self.adaptive.noise_of_updates(self.plan.round_noise_multiplier[t], expected)
            return np.full(self.plan.clients, state.clip_norm), state.clip_norm * sigma
        norms = np.array([row.clip_norm[t] for row in self.plan.groups])[self.group]
        sigma = self.plan.round_noise_multiplier[t]
        return norms, self.plan.clip_norm * sigma if sigma else 0.0


def train(
    plan: Plan,
    model: nn.Module,
    clients: Sequence[Any],
    *,
    training: LocalTraining | None = None,
    mechanics: Mechanics | None = None,
    test: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
    reproducible: bool = False,
    engine: str = "auto",
    loss: Loss = default_loss,
    adaptive: AdaptiveClipping | None = None,
    workers: int | None = None,
    on_round: Callable[[RoundReport], None] | None = None,
) -> tuple[nn.Module, list[RoundReport]]:
    """Train a model by a plan, on any list of clients' datasets; see `Federation` for the arguments.

    Returns:
        The trained model, and a report a round.
    """
    result = copy.deepcopy(model)
    federation = Federation(
        plan,
        result,
        clients,
        training or LocalTraining(),
        mechanics or Mechanics(),
        test,
        Randomness(seed, reproducible),
        engine,
        loss,
        adaptive,
        workers,
    )
    state, reports = federation.start(), []
    while state.round < plan.rounds:
        state, report = federation.step(state)
        reports.append(report)
        if on_round is not None:
            on_round(report)
    federation.layout.load(result, state.model)
    return result, reports
