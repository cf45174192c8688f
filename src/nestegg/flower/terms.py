"""What a federation agrees on before the first round, and what follows from it for a client in a round.

Terms are public: they depend on budgets, never on data. Whoever holds their digest knows every rate, clip norm and
noise that will ever be asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nestegg.checks import one_of, positive, whole
from nestegg.configuration.terms_file import FORMAT, parse_terms, terms_digest
from nestegg.errors import InputError
from nestegg.mechanism import CLIPPINGS, MAX_COHORT, Lattice, share_std
from nestegg.mechanism.side import Estimate, estimates, rest_of_norm
from nestegg.planning import METHODS, GroupPlan, Plan, check_plan
from nestegg.schema import Section
from nestegg.training import SideStatistics


class Order(Section):
    """What a client is to do in a round.

    Attributes:
        run: of which run.
        terms: digest of the terms it follows from.
        group: whose rows apply to the client.
        round: counted from 1.
        clipping: flat or per-layer.
        clip_norm: of the update, in its own unit: c_n^t, less what side statistics take of it.
        noise_std: of the client's own share.
        step: of the lattice on which the answer lies.
        learnt_norm: c^t, where it is learnt; else 0.
        statistics: which further coordinates the answer has.
        lengths: how far each of them may move.
        largest_loss: what a larger one counts as, where losses are asked for.
    """

    run: str
    terms: str
    group: str
    round: int
    clipping: str
    clip_norm: float
    noise_std: float
    step: float
    learnt_norm: float = 0.0
    statistics: list[str] = Field(default_factory=list)
    lengths: list[float] = Field(default_factory=list)
    largest_loss: float = 0.0

    @property
    def whole_norm(self) -> float:
        """The norm within which all of the answer lies, but for its noise."""
        return math.hypot(self.clip_norm, *self.lengths)


@dataclass(frozen=True)
class Terms:
    """A plan, and how it applies to the updates of one run.

    Attributes:
        run: its name, unique: under it the run stands in every ledger.
        plan: rates, noise multipliers and clip norms.
        clipping: flat clips the whole update to c_n^t, per-layer each of the m layers to c_n^t/√m.
        colluders: clients against whose joint knowledge of their own noise the guarantee shall hold.
        clip_scale: a factor a round for clip norms and noise alike, which leaves privacy as it is: the learning rate
            λ_t where clip norms are norms of the accumulated gradient, and 1 where they are norms of the update.
        note: that the run is not for release, where its noise follows from a seed.
        side: what clients say besides their updates.
    """

    run: str
    plan: Plan
    clipping: str
    colluders: int
    clip_scale: tuple[float, ...]
    note: str | None = None
    side: SideStatistics = field(default_factory=SideStatistics)

    def __post_init__(self) -> None:
        check_method(self.plan)
        check_plan(self.plan)  # also of rates: whoever is never drawn pays nothing, and must not be asked
        whole("plan.clients", self.plan.clients, 1, MAX_COHORT)  # so that every sum is exact
        one_of("clipping", self.clipping, CLIPPINGS)
        whole("colluders", self.colluders, 0, self.plan.clients - 1)
        if len(self.clip_scale) != self.plan.rounds:
            raise InputError(f"clip_scale has {len(self.clip_scale)} numbers; the plan has {self.plan.rounds} rounds.")
        for scale in self.clip_scale:
            positive("clip_scale", scale)
        for round_ in range(1, self.plan.rounds + 1):  # before any of them is charged
            self.lattice(round_)

    @classmethod
    def parse(cls, text: str) -> Terms:
        """Terms from their JSON, which a stranger may have written."""
        record = parse_terms(text)
        plan = record.parsed_plan()
        side = SideStatistics(**record.side.model_dump())
        return cls(record.run, plan, record.clipping, record.colluders, tuple(record.clip_scale), record.note, side)

    @cached_property
    def text(self) -> str:
        """The terms as JSON."""
        content = {
            "format": FORMAT,
            "run": self.run,
            "plan": self.plan.to_json(),
            "clipping": self.clipping,
            "colluders": self.colluders,
            "clip_scale": list(self.clip_scale),
            **({"side": asdict(self.side)} if self.side.shares else {}),
            **self.stamp,
        }
        return json.dumps(content, sort_keys=True, allow_nan=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it, the plan by its own digest: what a client holds on to."""
        return terms_digest(self.text, self.plan.digest)

    @property
    def stamp(self) -> dict[str, str]:
        """What every file of the run says about itself."""
        return {} if self.note is None else {"note": self.note}

    def row(self, group: str) -> GroupPlan:
        """The plan of a group."""
        name = one_of("group", group, [row.group.name for row in self.plan.groups])
        return next(row for row in self.plan.groups if row.group.name == name)

    def noise_std(self, round_: int, learnt: float = 0.0) -> float:
        """Standard deviation of one share in a round: N of them make the total noise c σ^t.

        Args:
            round_: counted from 1.
            learnt: c, where it is learnt.
        """
        norm = learnt or self.plan.clip_norm
        total = norm * self._noise_multiplier[round_ - 1] * self.clip_scale[round_ - 1]
        return share_std(total, self.plan.clients, self.colluders)

    @cached_property
    def _noise_multiplier(self) -> tuple[float, ...]:
        return self.plan.round_noise_multiplier  # a mean over all groups: once is enough

    def lattice(self, round_: int, learnt: float = 0.0) -> Lattice:
        """The lattice of a round, on which clients answer and the server sums."""
        return Lattice.for_noise(self.noise_std(round_, learnt) * math.sqrt(self.plan.clients))

    def order(self, group: str, round_: int, learnt: float = 0.0) -> Order:
        """What a client of a group is to do in a round.

        A learnt norm c^t is the server's to say: clip norms and noise grow with it alike, so privacy stays as it is.
        """
        whole("round", round_, 1, self.plan.rounds)
        if learnt and not self.side.learns_clip_norm:
            raise InputError(f"learnt_norm = {learnt!r} must be 0: the terms have all clip norms.")
        norm, shares = self._norm(self.row(group), round_, learnt), list(self.side.shares.values())
        return Order(
            run=self.run,
            terms=self.digest,
            group=group,
            round=round_,
            clipping=self.clipping,
            clip_norm=norm * rest_of_norm(shares),
            noise_std=self.noise_std(round_, learnt),
            step=self.lattice(round_, learnt).step,
            learnt_norm=learnt,
            statistics=list(self.side.shares),
            lengths=[norm * math.sqrt(share) for share in shares],
            largest_loss=self.side.largest_loss if self.side.curve_share else 0.0,
        )

    def said(self, round_: int, sums: NDArray[np.float64], learnt: float = 0.0) -> dict[str, Estimate]:
        """What the noisy sums of side statistics say in a round."""
        rows, shares = self.plan.groups, np.sqrt(list(self.side.shares.values()))
        norms = np.array([self._norm(row, round_, learnt) for row in rows])
        expected = np.array([row.sampling_rate[round_ - 1] * row.group.clients for row in rows])
        noise = self.noise_std(round_, learnt) * math.sqrt(self.plan.clients)
        found = estimates(sums, norms[:, None] * shares, expected, noise)
        return dict(zip(self.side.shares, found, strict=True))

    def _norm(self, row: GroupPlan, round_: int, learnt: float) -> float:
        norm = row.clip_norm[round_ - 1]
        if learnt:
            norm *= positive("learnt_norm", learnt) / self.plan.clip_norm
        return norm * self.clip_scale[round_ - 1]

    def expected(self, round_: int) -> float:
        """q^t N, by which the round's sum is divided, whoever replied."""
        return self.plan.mean_sampling_rate[round_ - 1] * self.plan.clients


def check_method(plan: Plan) -> None:
    """Refuse a method without noise, and one whose clip norm is learnt: clients know all norms beforehand."""
    if not plan.is_private or plan.about.learns_clip_norm:
        known = [name for name, one in METHODS.items() if one.is_private and not one.learns_clip_norm]
        raise InputError(f"plan.method = {plan.method!r} must be one of {', '.join(known)}, or a planner of one's own.")


def own_plan(plan: Plan, group: str) -> Plan:
    """The plan as one client of a group sees it: what it will be charged, with nobody else in it."""
    row = next(row for row in plan.groups if row.group.name == group)
    norms = (plan.clip_norm,) * plan.rounds  # with one client, c^t = c σ^t/σ^t
    alone = replace(row, group=replace(row.group, clients=1, members=(), already_spent=()), clip_norm=norms)
    return replace(plan, groups=(alone,))


@dataclass(frozen=True)
class Sharing:
    """How a plan applies to updates: how they are clipped, and how clients share the noise.

    Attributes:
        clipping: per-layer or flat.
        colluders: clients against whose joint knowledge of their own noise the guarantee shall hold.
        clip_scale: a factor a round for clip norms and noise, such as a learning rate, 1 by default; see `Terms`.
        side: what clients say besides their updates.
    """

    clipping: str = "per-layer"
    colluders: int = 0
    clip_scale: Sequence[float] | None = None
    side: SideStatistics = field(default_factory=SideStatistics)

    def terms(self, run: str, plan: Plan, *, note: str | None = None) -> Terms:
        """Return the terms of a run by a plan."""
        scale = (1.0,) * plan.rounds if self.clip_scale is None else tuple(map(float, self.clip_scale))
        return Terms(run, plan, self.clipping, self.colluders, scale, note, self.side)
