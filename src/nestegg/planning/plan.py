"""A plan: per group and round a sampling rate, a noise multiplier and a clip norm. Plain data, frozen, printable."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nestegg.accounting import Array, Charge, merged
from nestegg.planning.budget import Group
from nestegg.planning.curves import Local, Pace, pace_of
from nestegg.planning.registry import Method, known_method

FORMAT = "nestegg-plan/1"


@dataclass(frozen=True)
class GroupPlan:
    """The rows of one group. All numbers are public: they depend on budgets, never on data.

    Attributes:
        group: whose rows these are.
        sampling_rate: q_n^t of every round.
        noise_multiplier: σ_n^t of every round; 0 is no noise.
        clip_norm: c_n^t of every round; infinite is no clipping.
        epsilon_spent: ε after every round, by the plan's accountant, with everything that was spent before.
        epsilon_spent_pld: ε after the last round by privacy loss distributions, once somebody has asked.
    """

    group: Group
    sampling_rate: tuple[float, ...]
    noise_multiplier: tuple[float, ...]
    clip_norm: tuple[float, ...]
    epsilon_spent: tuple[float, ...]
    epsilon_spent_pld: float | None = None

    @property
    def already_spent(self) -> tuple[Charge, ...]:
        """Releases before this plan: an earlier run, lost rounds, the rounds a re-plan follows."""
        return self.group.already_spent

    def charges(self, rounds: int | None = None) -> tuple[Charge, ...]:
        """Everything a client of the group has spent after some rounds (all by default), equal releases counted."""
        pairs = list(zip(self.sampling_rate, self.noise_multiplier, strict=True))[:rounds]
        return merged((*self.already_spent, *(Charge(q, sigma) for q, sigma in pairs)))


@dataclass(frozen=True)
class Plan:
    """Everything that makes one method differ from another, decided before training and free of privacy cost.

    Attributes:
        method: one of `METHODS`, or "module:Name" of a planner that is not ours.
        composition: one of `COMPOSITIONS`; only spend-as-you-go knows the difference.
        accountant: one of `ACCOUNTANTS`.
        spending_rate: q.
        clip_norm: c, the mean of the clients' clip norms in every round.
        orders: the grid of Rényi orders behind the numbers; empty where there is none, and for renyi where every
            group has the order that follows from its budget.
        groups: a row a group.
        parameters: of the planner, as JSON values, where rows and composition do not say all of them.
    """

    method: str
    composition: str
    accountant: str
    spending_rate: float
    clip_norm: float
    orders: tuple[float, ...]
    groups: tuple[GroupPlan, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def about(self) -> Method:
        """All there is to say of the method; nothing is imported for it."""
        return known_method("plan.method", self.method)

    @property
    def is_private(self) -> bool:
        """Whether there is noise, so that spending has a bound."""
        return self.about.is_private

    @property
    def title(self) -> str:
        """The method and how it is set, for people."""
        stated = ", ".join(f"{name} = {value}" for name, value in self.parameters.items() if value is not None)
        return f"{self.method} ({stated or self.composition})" if stated or not self.about.is_own else self.method

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.groups[0].sampling_rate)

    @property
    def clients(self) -> int:
        """N."""
        return sum(row.group.clients for row in self.groups)

    @property
    def delta(self) -> float:
        """δ of every client's budget."""
        return self.groups[0].group.budget.delta

    @property
    def mean_sampling_rate(self) -> tuple[float, ...]:
        """q^t, the average over all clients (Algorithm 1, line 14): q^t N is the denominator of the round's update."""
        rates = np.array([row.sampling_rate for row in self.groups])
        return tuple((weights(self.groups) @ rates).tolist())

    @property
    def round_noise_multiplier(self) -> tuple[float, ...]:
        """σ^t, the harmonic mean over all clients (Algorithm 1, line 10)."""
        return tuple(harmonic_mean(self.groups, [row.noise_multiplier for row in self.groups]).tolist())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the plan's decisions: the name under which others may refer to exactly this plan."""
        decisions = self._decisions()
        for group in decisions["groups"]:
            del group["epsilon_spent_pld"]  # a finding about the plan, not a part of it
        text = json.dumps(decisions, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def verify(self) -> tuple[float, ...]:
        """Recompute every group's ε from the plan's own rows; raise `VerificationError` if anything is off."""
        from nestegg.planning.judge import verify

        return tuple(verdict.epsilon for verdict in verify(self))

    def replan(
        self,
        after: int,
        lost: dict[str, Sequence[Charge]] | None = None,
        *,
        local: Pace | None = None,
    ) -> Plan:
        """A new plan for the rounds after round `after`, from what is really spent by then.

        Args:
            after: rounds of this plan that were released (and are paid).
            lost: further charges by group name: a round that had to be paid twice, a run elsewhere.
            local: learning rates of all rounds of this plan; a plan does not keep them.
        """
        from nestegg.planning.replanning import replan

        return replan(self, after, lost or {}, local)

    def noise_to_signal(self, parameters: int, *, local: Pace | Local | Sequence[float] | None = None) -> float:
        """Return how long the noise in a model of so many parameters is, beside the longest way clients could take it.

        Up to 0.1 noise costs a few points of accuracy, from 1 on it is longer than any signal (docs/recipes.md).

        Args:
            parameters: that are trained.
            local: learning rates of all rounds, as `nestegg.plan` takes them; a plan does not keep them.

        >>> from nestegg import Budget, Group, plan
        >>> made = plan([Group("all", 100, Budget(10.0))], 25)
        >>> round(made.noise_to_signal(4_420), 3)
        0.151
        """
        from nestegg.planning.reaching import noise_to_signal

        return noise_to_signal(self, parameters, pace_of(local, self.rounds))

    def _repr_html_(self) -> str:
        """The plan as notebooks show it: a table."""
        from nestegg.planning.plan_html import plan_html

        return plan_html(self)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-ready values; what is infinite is null, for JSON has no infinity."""
        return {
            **self._decisions(),
            "mean_sampling_rate": list(self.mean_sampling_rate),
            "round_noise_multiplier": list(self.round_noise_multiplier),
            "digest": self.digest,
        }

    def to_json(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def _decisions(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "method": self.method,
            "composition": self.composition,
            "accountant": self.accountant,
            "delta": self.delta,
            "rounds": self.rounds,
            "clients": self.clients,
            "spending_rate": self.spending_rate,
            "clip_norm": finite_or_none(self.clip_norm),
            "orders": list(self.orders),
            "groups": [_group_to_dict(row) for row in self.groups],
            **({"parameters": dict(self.parameters)} if self.about.has_parameters else {}),
        }


def weights(groups: Sequence[GroupPlan] | Sequence[Group]) -> Array:
    """Each group's share of all clients."""
    counts = np.array([g.group.clients if isinstance(g, GroupPlan) else g.clients for g in groups], np.float64)
    return np.asarray(counts / counts.sum())


def harmonic_mean(groups: Sequence[GroupPlan] | Sequence[Group], noise: Sequence[Sequence[float]] | Array) -> Array:
    """σ^t = (1/N Σ_n 1/σ_n^t)^(-1), over clients, so weighted by the sizes of the groups; 0 where there is no noise."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / (weights(groups) @ (1.0 / np.asarray(noise, np.float64))))


def _group_to_dict(row: GroupPlan) -> dict[str, Any]:
    return {
        "name": row.group.name,
        "clients": row.group.clients,
        "epsilon": row.group.budget.epsilon,
        "saving_rate": row.group.saving_rate,
        "transition": row.group.transition,
        "sampling_rate": list(row.sampling_rate),
        "noise_multiplier": list(row.noise_multiplier),
        "clip_norm": [finite_or_none(c) for c in row.clip_norm],
        "epsilon_spent": [finite_or_none(e) for e in row.epsilon_spent],
        "epsilon_spent_pld": None if row.epsilon_spent_pld is None else finite_or_none(row.epsilon_spent_pld),
        "already_spent": [list(charge) for charge in row.already_spent],
    }


def finite_or_none(value: float) -> float | None:
    """A number as JSON knows it."""
    return value if math.isfinite(value) else None
