"""Exact attacks: what statistics cannot see. Each has a single right answer, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nestegg.audit.claims import Claims
from nestegg.audit.findings import Finding
from nestegg.audit.watching import Watched
from nestegg.training import State

# A loud canary must come this close to its clip norm, but for what truncation takes; clipping aims a millionth below.
REACHED = 1.0 - 1e-5
TRUNCATED = 2.0  # steps that truncation takes, at most: one of each of up to four coordinates


@dataclass(frozen=True, eq=False)
class Attacked:
    """A federation whose rounds are attacked, and who is who in it.

    Attributes:
        arm: its name.
        claims: what is promised.
        watched: its rounds.
        canaries: clients with data, one or more of each group.
        owner: the group of each.
        failing: clients who cannot be trained.
        how: they fail.
        is_loud: whether each canary's update is known to be longer than its clip norm.
    """

    arm: str
    claims: Claims
    watched: Watched
    canaries: tuple[int, ...]
    owner: tuple[int, ...]
    failing: tuple[int, ...] = ()
    how: str = ""
    is_loud: bool = False

    def state(self, t: int) -> State:
        """The first state, as if it were that of a later round."""
        return replace(self.watched.federation.start(), round=t)

    def length(self, points: Tensor) -> float:
        """The length of some lattice points, in the unit of updates."""
        return math.sqrt(math.fsum(np.square(points.numpy()).tolist())) * self.watched.clipping.step


def some_rounds(claims: Claims) -> list[int]:
    """Return the first round, the last, one between, and one where some group's rate changes most."""
    last = claims.plan.rounds - 1
    change = np.abs(np.diff(claims.rates, axis=1)).max(axis=0)
    turn = [int(np.argmax(change)) + 1] if change.size and change.max() > 0.0 else []
    return sorted({0, last // 2, last, *turn})


def exact_attacks(one: Attacked) -> Iterator[Finding]:
    """Attack the sum before its noise, in some rounds: each canary leaves, and must leave nothing behind."""
    rounds = some_rounds(one.claims)
    contributions = {t: [one.watched.contribution(one.state(t), [client]) for client in one.canaries] for t in rounds}
    yield from _lengths(one, contributions)
    yield _company(one, contributions)
    yield _lattice(one, contributions)


def _lengths(one: Attacked, contributions: dict[int, list[Tensor]]) -> Iterator[Finding]:
    """A client moves the sum by its clip norm at most; by all of it, if its update is longer."""
    whole = math.sqrt(1.0 - one.claims.side.curve_share)  # a loud canary holds nothing back to measure on
    for group in sorted(set(one.owner)):
        shares, reached = [], []
        for t, alone in contributions.items():
            one.watched.contribution(one.state(t), [])  # for the lattice of this round
            for owner, points in zip(one.owner, alone, strict=True):
                if owner == group:
                    norm, length = one.claims.norm(group, t, one.state(t).clip_norm), one.length(points)
                    shares.append(length / norm)
                    reached.append((length + TRUNCATED * one.watched.clipping.step) / (norm * whole))
        name, most, least = one.claims.plan.groups[group].group.name, max(shares), min(shares)
        says = f"a client moves the sum by {most:.6f} of its clip norm; at most 1 is claimed"
        yield Finding(one.arm, "sensitivity", says, name, refutes=not most <= 1.0, trials=len(shares))
        if one.is_loud:
            says = f"an update beyond the clip norm counts as {least / whole:.6f} of it; 1 is claimed"
            yield Finding(one.arm, "clip norm", says, name, refutes=not min(reached) >= REACHED, trials=len(shares))


def _company(one: Attacked, contributions: dict[int, list[Tensor]]) -> Finding:
    """What clients contribute together is the sum of what each contributes alone, whoever leaves."""
    off, trials = 0, 0
    for t, alone in contributions.items():
        leaving = [None, *range(len(one.canaries))] if t == 0 else [None, t % len(one.canaries)]
        for gone in leaving:
            stay = [i for i in range(len(one.canaries)) if i != gone]
            together = one.watched.contribution(one.state(t), [one.canaries[i] for i in stay])
            expected = torch.stack([alone[i] for i in stay]).sum(dim=0) if stay else torch.zeros_like(together)
            off += int(not torch.equal(together, expected))
            trials += 1
    says = f"in {off} of {trials} cohorts a client's contribution depended on others"
    return Finding(one.arm, "company", says, refutes=off > 0, trials=trials)


def _lattice(one: Attacked, contributions: dict[int, list[Tensor]]) -> Finding:
    """Sums are whole numbers of a step that follows from the plan alone: a power of two, 2^−22 of the noise or less."""
    wrong = 0
    for t, alone in contributions.items():
        one.watched.contribution(one.state(t), [])
        step, std = one.watched.clipping.step, one.claims.std(t, one.state(t).clip_norm)
        is_step = step > 0.0 and math.frexp(step)[0] == 0.5 and 2.0**-24 < step / std <= 2.0**-22
        wrong += int(not is_step or not all(torch.equal(points, points.round()) for points in alone))
    says = f"in {wrong} of {len(contributions)} rounds a sum was off the public lattice"
    return Finding(one.arm, "lattice", says, refutes=wrong > 0, trials=len(contributions))


def failing_clients(one: Attacked) -> Finding:
    """Clients that cannot be trained count as zero: they stop nothing and change nobody else."""
    state, well, attack = one.state(0), list(one.canaries), f"clients {one.how}"
    try:
        after = one.watched.round(state, cohort=[*well, *one.failing])
    except Exception as error:
        says = f"{attack} stop the round: {type(error).__name__}"
        return Finding(one.arm, attack, says, refutes=True)
    together = one.watched.total
    fine = torch.equal(together, one.watched.contribution(state, well)) and bool(torch.isfinite(after.model).all())
    says = f"{attack} {'count as zero' if fine else 'change the sum'}"
    return Finding(one.arm, attack, says, refutes=not fine, trials=len(one.failing))
