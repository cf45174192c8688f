"""The one training loop (Algorithm 2): a method is a plan, and a round is a function from state to state."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nestegg.data.sources import Source
from nestegg.errors import InputError
from nestegg.mechanism import MAX_COHORT, Lattice, Layout, share_std
from nestegg.mechanism.randomness import Purpose
from nestegg.mechanism.side import Estimate, estimates, lengths_of, rest_of_norm
from nestegg.planning import Plan, check_promises
from nestegg.training.blocks import Clipping, Crew
from nestegg.training.callbacks import Callback, checked_callbacks, told
from nestegg.training.cluster import Cluster, cluster_at
from nestegg.training.cluster_workers import ClusterWorkers
from nestegg.training.engines import pooled_first
from nestegg.training.evaluation import Evaluation, Measures
from nestegg.training.holding import HoldingBack
from nestegg.training.local import LocalTraining
from nestegg.training.mechanics import Mechanics
from nestegg.training.members import members
from nestegg.training.performance import Performance, cores
from nestegg.training.reports import RoundReport, State
from nestegg.training.samples import check_fit
from nestegg.training.sending import Outfit
from nestegg.training.side import BELOW
from nestegg.training.waiting import Waiting
from nestegg.training.workers import Workers


class Federation:
    """A plan, clients and a model, ready to train: `train` does it in memory, `nestegg.run` in a durable folder.

    Args:
        plan: the method.
        model: any module; it is not changed. What needs no gradient is neither trained nor sent.
        clients: data by name, as a mapping or a source, joined with the names in the plan's groups; or a list in the
            order of the plan's groups. Data is a pair of tensors or arrays, or a dataset of pairs; a client without
            data contributes zero.
        local: what clients do.
        mechanics: clipping, noise, and where randomness comes from.
        test: public data to measure on: (inputs, targets), or an `Evaluation`.
        performance: engine, processes, device, precision.

    >>> import torch, nestegg
    >>> plan = nestegg.plan([nestegg.Group("all", 3, nestegg.Budget(10.0))], rounds=2)
    >>> data = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(3)]
    >>> model, reports = nestegg.train(Federation(plan, torch.nn.Linear(4, 2), data))
    >>> len(reports)
    2
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        clients: Sequence[Any] | Mapping[str, Any] | Source,
        *,
        local: LocalTraining | None = None,
        mechanics: Mechanics | None = None,
        test: Evaluation | Any | None = None,
        performance: Performance | None = None,
    ) -> None:
        if not isinstance(plan, Plan) or not isinstance(model, nn.Module):
            kinds = f"{type(plan).__name__} and {type(model).__name__}"
            raise InputError(f"a federation needs a Plan and a torch.nn.Module; they are {kinds}.")
        if plan.clients > MAX_COHORT:
            raise InputError(f"the plan has {plan.clients} clients; sums are exact for up to {MAX_COHORT} of them.")
        check_promises(plan)
        self.plan, self.local, self.mechanics = plan, local or LocalTraining(), mechanics or Mechanics()
        self.test, self.performance = Evaluation.of(test), performance or Performance()
        here = self.performance.here()  # where this process computes, if not where clients train
        here.check()
        self.mechanics.check(plan)
        self.randomness, self.rates = self.mechanics.randomness, self.local.rates(plan.rounds)
        self.names, self.clients = members(plan, clients, here.device)
        self.side = self.mechanics.said(plan)
        if (side := self.mechanics.side).curve_share:  # also without noise: methods train on the same samples
            self.clients = HoldingBack(self.clients, side.held_back, self.randomness)
        self.model = copy.deepcopy(model).to(here.device)
        self.layout = Layout.of(self.model)
        if not self.layout.size:
            raise InputError("model has no trainable parameters.")
        self.clients.expect(check_fit(self.model, self.clients.zeros, self.local.loss))
        if self.test is not None:
            self.test.check(copy.deepcopy(self.model), self.local.loss)
        self._check_lattices()
        cluster = None if self.performance.cluster is None else cluster_at(self.performance.cluster)
        held = None if cluster is None else cluster.instruction_set
        outfit = Outfit(here, self.model, self.clients, self.local, self.randomness, self.side, held)
        self.engine, self.why = outfit.engine()
        self.workers = self._crew(outfit, cluster)
        self.group = np.repeat(np.arange(len(plan.groups)), [row.group.clients for row in plan.groups])

    def _crew(self, outfit: Outfit, cluster: Cluster | None) -> Crew:
        """Those who train blocks: on a cluster, or in processes of this machine."""
        if cluster is not None:
            return ClusterWorkers(self.engine, replace(outfit, performance=self.performance), cluster)
        sizes, share = self.clients.sizes, float(np.mean(self.plan.mean_sampling_rate))
        count = self.performance.worker_count(
            self.engine.name,
            self.layout.size,
            samples=math.inf if sizes is None else self.local.epochs * int(sizes.sum()) * share,
            loads=len(self.clients) * share if self.clients.is_lazy else 0.0,
        )
        waiting, further = Waiting(cores(), self.performance.most_workers()), len(self.side.shares)
        return Workers(self.engine, count, self.layout.size, waiting, witness=outfit.witness(), further=further)

    def by(self, plan: Plan) -> Federation:
        """Return this federation by another plan for the same groups, such as one made anew for what is left."""
        if plan.digest == self.plan.digest:
            return self
        check_promises(plan)
        sizes = [[(row.group.name, row.group.clients) for row in one.groups] for one in (plan, self.plan)]
        if sizes[0] != sizes[1] or plan.rounds != self.plan.rounds:
            raise InputError("plan must have the groups and rounds of the federation's own plan.")
        self.mechanics.check(plan)
        other = copy.copy(self)
        other.plan = plan
        other._check_lattices()
        return other

    def start(self) -> State:
        """Return the state before the first round."""
        vector = self.layout.flatten(self.model)
        return State(0, vector, self.plan.clip_norm, torch.zeros_like(vector))

    def step(self, state: State, absent: Collection[int] = ()) -> tuple[State, RoundReport]:
        """Return the state and the report of one round, and how good its model is on public test data; see `round`."""
        started = time.perf_counter()
        state, report = self.round(state, absent)
        if self.test is not None:
            found = self.measured(state, self.test)
            report = replace(report, accuracy=found.accuracy, loss=found.loss, metrics=found.metrics)
            if self.randomness.reproducible and self.test.by_group:  # clients' own data: for simulations alone
                groups = {name: self.measured(state, own).accuracy for name, own in self.test.by_group.items()}
                report = replace(report, simulation_only_group_accuracy=groups)
        return state, replace(report, private_seconds=time.perf_counter() - started)

    def round(self, state: State, absent: Collection[int] = ()) -> tuple[State, RoundReport]:
        """Return the state and the report of one round: sample, train, clip, noise, sum, update (Algorithm 2, 4 to 9).

        Args:
            state: after the round before.
            absent: clients who have withdrawn. They are never sampled, their shares of noise are made up, and the
                denominator stays the plan's.
        """
        t, plan = state.round, self.plan
        unit = self._unit(t)
        expected = plan.mean_sampling_rate[t] * plan.clients
        norms, noise_std = self._norms_and_noise(state, t, expected)
        share = share_std(noise_std * unit, plan.clients, self.mechanics.colluders)
        lattice = Lattice.for_noise(share * math.sqrt(plan.clients)) if share else None
        layers = self.layout.layers if self.mechanics.clipping == "per-layer" else None
        shares = tuple(self.side.shares.values())
        lengths = lengths_of(norms * unit, shares)
        clipping = Clipping(norms * unit * rest_of_norm(shares), layers, lattice.step if lattice else 0.0, lengths)

        cohort = self.cohort(t + 1)
        working = [client for client in cohort if client not in absent and client not in self.clients.empty]
        total = state.model.new_zeros(self.layout.size + len(shares), dtype=torch.float64)
        broken, bits = 0, 0.0
        for part in self.workers.sums(state.model, working, t + 1, self.rates[t], clipping):
            total += part.total
            bits += part.bits
            broken += part.broken
        if lattice is not None:  # the shares of all: of those who took part, and of those for whom the server makes up
            stream = self.randomness.stream(Purpose.NOISE, t + 1)
            total += torch.from_numpy(lattice.noise(share, plan.clients, len(total), stream)).to(total.device)
            total *= lattice.step  # exact: a power of two

        update = (total[: self.layout.size] / expected).to(state.model.dtype)
        clip_norm, velocity = state.clip_norm, state.velocity
        said = self._said(t, total[self.layout.size :], lengths, share * math.sqrt(plan.clients))
        if self.side.learns_clip_norm:
            clip_norm = self.side.next_norm(clip_norm, said[BELOW])
        if (controller := self.mechanics.controller(plan)) is not None:
            stream = self.randomness.stream(Purpose.BITS, t + 1)
            sigma = plan.round_noise_multiplier[t]
            clip_norm = controller.next_norm(clip_norm, bits, sigma, expected, stream)
            velocity = controller.server_momentum * velocity + update
            update = controller.server_rate * velocity
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
            learning_rate=self.rates[t],
            side=self.side.told(said),
        )
        return State(t + 1, state.model + update, clip_norm, velocity), report

    def cohort(self, round_: int) -> list[int]:
        """Draw the clients of a round: each by itself, with its own rate (Poisson). An empty cohort is valid."""
        rates = self._sampling_rates(round_ - 1)
        draws = self.randomness.stream(Purpose.COHORT, round_).random(self.plan.clients)
        return [int(client) for client in np.flatnonzero(draws < rates)]

    def measured(self, state: State, samples: Evaluation) -> Measures:
        """Return how good the model of a state is on some samples."""
        self.layout.load(self._probe, state.model)
        return samples.measured(self._probe, self.local.loss)

    def model_at(self, state: State) -> nn.Module:
        """Return the model of a state, a copy."""
        model = copy.deepcopy(self.model)
        self.layout.load(model, state.model)
        return model

    def fingerprint(self) -> Iterator[Tensor | bytes]:
        """Yield everything that a run begins with: clients' data, test data and the first model. It is a secret."""
        yield from self.clients.fingerprint()
        yield from self.public_fingerprint()

    def public_fingerprint(self) -> Iterator[Tensor | bytes]:
        """Yield what a run begins with and no client has: test data and the first model."""
        if self.test is not None:
            yield from (self.test.inputs, self.test.targets)
        yield from self.model.state_dict().values()  # also what is frozen

    @cached_property
    def _probe(self) -> nn.Module:
        """A model to evaluate states with."""
        return pooled_first(copy.deepcopy(self.model))

    def _sampling_rates(self, t: int) -> np.ndarray[Any, Any]:
        return np.array([row.sampling_rate[t] for row in self.plan.groups])[self.group]

    def _said(self, t: int, sums: Tensor, lengths: np.ndarray[Any, Any], noise_std: float) -> dict[str, Estimate]:
        """What the sums of side statistics, with their noise, say in a round."""
        found = estimates(sums.cpu().numpy(), lengths, self._sampling_rates(t), noise_std)
        return dict(zip(self.side.shares, found, strict=True))

    def _unit(self, t: int) -> float:
        return self.rates[t] if self.mechanics.clip_unit == "gradient" else 1.0

    def _check_lattices(self) -> None:
        """Refuse noise that has no lattice before any round is charged; a learnt norm is known for the first."""
        plan = self.plan
        if not plan.is_private:
            return
        noise = plan.round_noise_multiplier
        if (controller := self.mechanics.controller(plan)) is not None:
            noise = (controller.noise_of_updates(noise[0], plan.mean_sampling_rate[0] * plan.clients),)
        for t, sigma in enumerate(noise):
            share = share_std(plan.clip_norm * sigma * self._unit(t), plan.clients, self.mechanics.colluders)
            Lattice.for_noise(share * math.sqrt(plan.clients))

    def _norms_and_noise(self, state: State, t: int, expected: float) -> tuple[np.ndarray[Any, Any], float]:
        """Every client's clip norm and the total noise c σ^t, before the unit of clipping."""
        if (controller := self.mechanics.controller(self.plan)) is not None:
            sigma = controller.noise_of_updates(self.plan.round_noise_multiplier[t], expected)
            return np.full(self.plan.clients, state.clip_norm), state.clip_norm * sigma
        norms = np.array([row.clip_norm[t] for row in self.plan.groups])[self.group]
        sigma = self.plan.round_noise_multiplier[t]
        if self.side.learns_clip_norm:
            return norms * (state.clip_norm / self.plan.clip_norm), state.clip_norm * sigma
        return norms, self.plan.clip_norm * sigma if sigma else 0.0


def train(federation: Federation, *, callbacks: Sequence[Callback] = ()) -> tuple[nn.Module, list[RoundReport]]:
    """Train in memory: nothing is written, and no ledger pays. `nestegg.run` does both.

    Args:
        federation: plan, model and clients.
        callbacks: hear of each round; one may stop the training.

    Returns:
        The trained model, and a report a round.
    """
    callbacks, state, reports = checked_callbacks(callbacks), federation.start(), []
    for one in callbacks:
        one.on_start(federation, state.copy())
    while state.round < federation.plan.rounds:
        state, report = federation.step(state)
        reports.append(report)
        if told(callbacks, state, report) is not None:
            break
    for one in callbacks:
        one.on_end(state.copy())
    return federation.model_at(state), reports
