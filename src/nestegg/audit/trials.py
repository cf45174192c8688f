"""Trials: the plan run again and again with canaries, and what an adversary sees of each in the released models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nestegg.accounting import Array
from nestegg.audit.canaries import QUIET, Crafted, crafted, loud
from nestegg.audit.claims import Claims
from nestegg.training import Performance, State

CANARIES = 256  # in one round, at most
_NUMBERS = 2**24  # that are kept of all trials, at most


class Pass(NamedTuple):
    """Once through the plan: arrays of (round, canary) or (round, coordinate of nobody).

    Attributes:
        seen: what is seen along each canary's own direction, in units of the round's noise.
        signal: what its whole update would add to that.
        drawn: whether it was drawn.
        quiet: what is seen where nobody has a direction, in units of the round's noise.
        bits: what sums of bits and of other side statistics are off by, in units of their noise: a column each.
    """

    seen: Array
    signal: Array
    drawn: NDArray[np.bool_]
    quiet: Array
    bits: Array


@dataclass
class Noise:
    """Sums over values that should be independent and standard normal.

    Attributes:
        count: values.
        squares: the sum of their squares.
        products: how many products of a value with a neighbour of some kind there are, and their sum.
    """

    count: int = 0
    squares: float = 0.0
    products: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, values: Array, before: Array | None) -> None:
        """Count the values of a pass, (round, coordinate), beside those of the pass before."""
        self.count += values.size
        self.squares += float(np.square(values).sum())
        self._multiply("rounds", values[1:], values[:-1])
        self._multiply("coordinates", values[:, 1:], values[:, :-1])
        if before is not None:
            self._multiply("runs", values, before)

    def _multiply(self, name: str, values: Array, others: Array) -> None:
        count, total = self.products.get(name, (0, 0.0))
        self.products[name] = count + values.size, total + float((values * others).sum())


@dataclass(frozen=True, eq=False)
class Trials:
    """What canaries looked like. A trial is a canary in one pass through the plan.

    Attributes:
        clients: that are canaries.
        group: of each trial.
        present: whether its canary had data.
        seen, signal, drawn: as in a pass, (trial, round).
        noise: of coordinates that nobody moves.
        withdrawn: the same where half of the clients have withdrawn.
        bits: noise of the sum of bits.
        passes: through the plan.
    """

    clients: NDArray[np.int64]
    group: NDArray[np.int64]
    present: NDArray[np.bool_]
    seen: Array
    signal: Array
    drawn: NDArray[np.bool_]
    noise: Noise
    withdrawn: Noise
    bits: Noise
    passes: int


def gather(
    claims: Claims, performance: Performance, groups: Sequence[int], *, layers: int, go_on: Callable[[int], bool]
) -> Trials:
    """Run the plan with canaries of some groups until told to stop.

    Half of the canaries have data, and the other half in the next pass. Every fourth pass is followed by one in which
    half of all clients have withdrawn.

    Args:
        claims: what is attacked.
        performance: engine and processes.
        groups: whose clients are canaries.
        layers: of the crafted network.
        go_on: asked with the number of passes that are done; two are made in any case.
    """
    clients = chosen(claims, groups)
    sides = [np.arange(len(clients)) % 2 == side for side in (0, 1)]
    federations = [
        crafted(claims, performance, dict(zip(clients.tolist(), side * loud(claims), strict=True)), layers=layers)
        for side in sides
    ]
    noise, withdrawn, bits = Noise(), Noise(), Noise()
    passes: list[Pass] = []
    half = frozenset(range(0, claims.plan.clients, 2))
    most = max(2, _NUMBERS // (len(clients) * claims.plan.rounds))
    while len(passes) < 2 or (len(passes) < most and go_on(len(passes))):
        one = federations[len(passes) % 2]
        made = _pass(claims, one, clients)
        noise.add(made.quiet, passes[-1].quiet if passes else None)
        bits.add(made.bits, None)
        passes.append(made)
        if len(passes) % 4 == 1:
            withdrawn.add(_pass(claims, one, clients, half).quiet, None)
    owner = claims.owner[clients]
    seen, signal, drawn = (
        np.concatenate([getattr(one, name).T for one in passes]) for name in ("seen", "signal", "drawn")
    )
    present = np.concatenate([sides[number % 2] for number in range(len(passes))])
    group = np.tile(owner, len(passes))
    return Trials(clients, group, present, seen, signal, drawn, noise, withdrawn, bits, len(passes))


def chosen(claims: Claims, groups: Sequence[int], most: int = CANARIES) -> NDArray[np.int64]:
    """Return the clients who are canaries: at most so many, or two of each group, evenly from its first to its last."""
    sizes, each = claims.sizes.astype(np.int64), max(most // len(groups), 2)
    starts = np.cumsum(sizes) - sizes
    return np.concatenate([starts[g] + np.unique(np.linspace(0, sizes[g] - 1, each).astype(np.int64)) for g in groups])


def released(claims: Claims, before: State, after: State, said: Mapping[str, float]) -> Tensor:
    """Return the mean update of a round as the released models tell it, and the side statistics as its last entries."""
    if claims.plan.about.learns_clip_norm:  # the server's momentum is released too
        mean = after.velocity - claims.mechanics.adaptive.server_momentum * before.velocity
    else:
        mean = after.model - before.model
    sums = claims.side_sums(said, before.round, before.clip_norm) / claims.expected[before.round]
    return torch.cat([mean.double(), torch.from_numpy(sums)])


def _pass(claims: Claims, one: Crafted, clients: NDArray[np.int64], absent: Collection[int] = ()) -> Pass:
    owner = claims.owner[clients]
    rows: list[tuple[NDArray[Any], ...]] = []
    before = one.watched.federation.start()
    for t in range(claims.plan.rounds):
        after = one.watched.round(before, absent)
        std = claims.std(t, before.clip_norm)
        view = one.seen(released(claims, before, after, one.watched.said)) * claims.expected[t] / std
        norms = np.array([claims.norm(group, t, before.clip_norm) for group in range(len(claims.sizes))])
        is_drawn = np.isin(clients, np.array(one.watched.drawn, np.int64))
        bits = _bits(claims, one, before, after)
        rows.append((view[: len(clients)], claims.rest * norms[owner] / std, is_drawn, view[-QUIET:], bits))
        before = after
    return Pass(*(np.stack(part) for part in zip(*rows, strict=True)))


def _bits(claims: Claims, one: Crafted, before: State, after: State) -> Array:
    """What is released of bits and side statistics, less what they add up to, in units of their noise."""
    if not claims.plan.about.learns_clip_norm:
        sums = claims.side_sums(one.watched.said, before.round, before.clip_norm)
        exact = one.watched.total[one.watched.federation.layout.size :].numpy() * one.watched.clipping.step
        return np.asarray((sums - exact) / claims.std(before.round, before.clip_norm))
    controller, expected = claims.mechanics.adaptive, claims.expected[before.round]
    share = controller.quantile - np.log(after.clip_norm / before.clip_norm) / controller.step
    off = (share - 0.5) * expected - one.watched.bits
    return np.array([off / claims.noise_of_bits(before.round)])
