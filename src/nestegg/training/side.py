"""Side statistics of a federation: what clients say besides their updates, within the same clip norm.

Two uses: whether updates lie below their norm, from which the norm is learnt with individual budgets and any schedule;
and a private learning curve, on samples that clients hold back, for federations without public test data.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from nestegg.checks import positive, probability
from nestegg.errors import InputError
from nestegg.mechanism import Layout
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.mechanism.side import Estimate
from nestegg.planning import Plan
from nestegg.training.adaptive import MAX_STEP, NORMS
from nestegg.training.engines import deterministic
from nestegg.training.evaluation import measured
from nestegg.training.holding import HoldingBack
from nestegg.training.local import Loss
from nestegg.training.seeding import seeded

BELOW, ACCURACY, LOSS = "below", "accuracy", "loss"
LEAST_SHARE, LARGEST_LOSS = 1e-6, 1e6
_NOTHING = (float("nan"), float("nan"))


@dataclass(frozen=True)
class SideStatistics:
    """What clients say besides their updates, and which share of the square of their clip norm it takes.

    Attributes:
        clip_share: of the bit that says whether an update was below its norm. The clip norm then follows it: plan and
            configuration give the first one. 0: nobody sends it, and the norm is the plan's.
        quantile: γ, the share of clients whose updates should lie below their norms.
        step: η, of the geometric update of the norm.
        curve_share: of loss and share of right answers, half of it each. 0: nobody sends them.
        held_back: share of each client's samples that it never trains on, and measures on.
        largest_loss: what a larger one counts as.

    >>> SideStatistics(clip_share=0.01).shares
    {'below': 0.01}
    """

    clip_share: float = 0.0
    quantile: float = 0.5
    step: float = 1.0
    curve_share: float = 0.0
    held_back: float = 0.1
    largest_loss: float = 5.0

    def __post_init__(self) -> None:
        for name in ("clip_share", "curve_share"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and (value == 0.0 or LEAST_SHARE <= value < 1.0)):
                raise InputError(f"{name} = {value!r} must be 0, or at least {LEAST_SHARE:g} and below 1.")
        if self.clip_share + self.curve_share >= 1.0:
            both = f"{self.clip_share!r} and {self.curve_share!r}"
            raise InputError(f"clip_share and curve_share, {both}, must add up to less than 1: updates need the rest.")
        probability("quantile", self.quantile)
        if positive("step", self.step) > MAX_STEP:
            raise InputError(f"step = {self.step!r} must be at most {MAX_STEP:g}.")
        probability("held_back", self.held_back)
        if positive("largest_loss", self.largest_loss) > LARGEST_LOSS:
            raise InputError(f"largest_loss = {self.largest_loss!r} must be at most {LARGEST_LOSS:g}.")
        for one in fields(self):  # 1 and 1.0 are the same, also in a digest
            object.__setattr__(self, one.name, float(getattr(self, one.name)))

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> SideStatistics:
        """Return what the table [privacy.side] says, or say where in it a mistake is."""
        try:
            return cls(**table)
        except InputError as error:
            raise InputError(f"privacy.side: {error}") from None

    @property
    def shares(self) -> dict[str, float]:
        """The share of every statistic, by name."""
        shares = {BELOW: self.clip_share, ACCURACY: self.curve_share / 2.0, LOSS: self.curve_share / 2.0}
        return {name: share for name, share in shares.items() if share}

    @property
    def learns_clip_norm(self) -> bool:
        """Whether the clip norm follows the bit."""
        return self.clip_share > 0.0

    def next_norm(self, norm: float, below: Estimate) -> float:
        """Return c^{t+1} = c^t exp(−η (b̃ − γ)), b̃ the noisy share of updates below their norms."""
        share = (1.0 + below.mean) / 2.0
        change = np.clip(-self.step * (share - self.quantile), -MAX_STEP, MAX_STEP)
        return float(np.clip(norm * np.exp(change), *NORMS))

    def cost(self, plan: Plan) -> str:
        """Return what it costs in noise, and how well statistics will be known in the first round, as two sentences."""
        share, weight = sum(self.shares.values()), 0.0
        for row in plan.groups:
            weight += row.group.clients * row.sampling_rate[0] * row.clip_norm[0] / plan.clip_norm
        noise = plan.round_noise_multiplier[0]
        stds = self.told({name: Estimate(0.0, noise / weight / f**0.5) for name, f in self.shares.items()})
        known = ", ".join(f"{name} to ±{stds[f'{name}_std']:.2g}" for name in self.shares)
        return (
            f"Side statistics take {share:.2%} of the square of every clip norm: beside updates, noise is "
            f"{(1.0 - share) ** -0.5 - 1.0:.2%} larger. The first round tells {known} (one standard deviation)."
        )

    def told(self, found: dict[str, Estimate]) -> dict[str, float]:
        """Return estimates in the units of people, each with the standard deviation of its noise."""
        units = {BELOW: (0.5, 0.5), ACCURACY: (50.0, 50.0), LOSS: (self.largest_loss / 2.0, -self.largest_loss / 2.0)}
        said: dict[str, float] = {}
        for name, (mean, std) in found.items():
            middle, half = units[name]
            said |= {name: middle + half * mean, f"{name}_std": abs(half) * std}
        return said


def statistics_of(
    names: Sequence[str], held: tuple[float, float], *, is_below: bool, largest: float
) -> NDArray[np.float64]:
    """Return one client's statistics, from −1 to 1 each, or not a number where there is none.

    Args:
        names: of those that are asked for.
        held: share of right answers and loss on samples that the client holds back.
        is_below: whether its update was below its norm.
        largest: loss; a larger one counts as this.
    """
    right, loss = held
    known = {BELOW: 1.0 if is_below else -1.0, ACCURACY: 2.0 * right - 1.0}
    if LOSS in names:  # infinite is large, and not a number is nothing
        known[LOSS] = -1.0 if loss >= largest else 1.0 - 2.0 * loss / largest
    return np.array([known[name] for name in names])


class Witness:
    """Computes what clients say: each from its own samples, its own update and the model alone.

    Args:
        side: what they say.
        model: that is trained; with its loss it is taken as it was at first for each of them, whatever it remembers.
        clients: with what they hold back; None where they measure nothing.
        loss: of outputs and targets.
        randomness: of what a model may draw while it is measured.
    """

    def __init__(
        self, side: SideStatistics, model: nn.Module, clients: HoldingBack | None, *, loss: Loss, randomness: Randomness
    ) -> None:
        self._side, self._clients, self._randomness = side, clients, randomness
        self._pristine, self._layout = (copy.deepcopy(model), copy.deepcopy(loss)), Layout.of(model)

    def values(
        self, model: Tensor, block: Sequence[int], round_: int, is_below: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return the statistics of a block of clients, from −1 to 1 each: (clients, statistics)."""
        names, largest = list(self._side.shares), self._side.largest_loss
        rows = [
            statistics_of(names, self._measured(model, client, round_), is_below=bool(below), largest=largest)
            for client, below in zip(block, is_below, strict=True)
        ]
        return np.stack(rows)

    def _measured(self, model: Tensor, client: int, round_: int) -> tuple[float, float]:
        """Right answers and loss on what a client holds back; not a number where there is nothing."""
        if self._clients is None:
            return _NOTHING
        try:
            samples = self._clients.held(client)
            if not len(samples[1]):
                return _NOTHING
            (key,) = self._clients.keys([client]).tolist()
            seed = int(self._randomness.stream(Purpose.MEASURING, round_, client=key).integers(2**63))
            probe, loss = copy.deepcopy(self._pristine)  # nothing of one client is left to the next
            self._layout.load(probe, model)
            with seeded(seed), deterministic(model.device.type):
                found = measured(probe, samples, loss)
        except (Exception, SystemExit):  # code of others may do anything; to stop would tell of this client's data
            return _NOTHING
        return np.nan if found.accuracy is None else found.accuracy / 100.0, found.loss
