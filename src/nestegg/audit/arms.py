"""The arms of an audit on the simulator: the crafted network, and the user's own model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nestegg.audit.canaries import crafted, loud
from nestegg.audit.claims import Claims
from nestegg.audit.exact import TRUNCATED, Attacked, some_rounds
from nestegg.audit.findings import Finding
from nestegg.mechanism.randomness import Randomness
from nestegg.training import Performance

CRAFTED = "crafted network"
_ROUNDED = 1e-4  # what single precision may take from an update


def members(claims: Claims, group: int) -> range:
    """Return the clients of a group, by number."""
    start = int(claims.sizes[:group].sum())
    return range(start, start + int(claims.sizes[group]))


def cast(claims: Claims, groups: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return some canaries, the group of each, and a client of each group who is to fail, where there is one left.

    The first and the last of a group: there a wrong boundary between groups would show.
    """
    ends = {group: (members(claims, group)[0], members(claims, group)[-1]) for group in groups}
    pairs = [(client, group) for group in groups for client in dict.fromkeys(ends[group])]
    failing = (client for group in groups for client in members(claims, group)[1:-1][:1])
    return tuple(client for client, _ in pairs), tuple(group for _, group in pairs), tuple(failing)


def crafted_arm(claims: Claims, performance: Performance, groups: Sequence[int], layers: int) -> Attacked:
    """Return loud canaries on the crafted network, beside clients whose data is no number; all follows from a seed."""
    canaries, owner, failing = cast(claims, groups)
    loudness = dict.fromkeys(canaries, loud(claims)) | dict.fromkeys(failing, float("inf"))
    known = Randomness(seed=int(np.random.SeedSequence().generate_state(1)[0]), reproducible=True)
    made = crafted(claims, performance, loudness, layers=layers, randomness=known)
    how = "with data that is no number"
    return Attacked(CRAFTED, claims, made.watched, canaries, owner, failing, how, is_loud=True)


def below_the_norm(claims: Claims, performance: Performance, groups: Sequence[int], layers: int) -> Iterator[Finding]:
    """Attack with updates of at most half the clip norm: they must count as they are, neither cut nor stretched."""
    rates = np.array(claims.local.rates(claims.plan.rounds))
    gradients = {
        members(claims, group)[0]: claims.rest * float((claims.norms[group] / rates).min()) / 4.0 for group in groups
    }
    made = crafted(claims, performance, gradients, layers=layers)
    for group, (client, gradient) in zip(groups, gradients.items(), strict=True):
        one, off = Attacked(CRAFTED, claims, made.watched, (client,), (group,)), 0.0
        for t in some_rounds(claims):
            length = one.length(one.watched.contribution(one.state(t), [client]))
            bit = np.sqrt(claims.side.clip_share) * claims.norm(group, t, one.state(t).clip_norm)
            right = float(np.hypot(gradient * rates[t] * np.sqrt(made.layers), bit))
            lost = TRUNCATED * one.watched.clipping.step  # of a round with much noise, more than single precision takes
            off = max(off, (abs(length - right) - lost) / right)
        says = f"an update shorter than the clip norm counts as {1.0 + off:.6f} of itself at worst; 1 is right"
        name = claims.plan.groups[group].group.name
        yield Finding(
            CRAFTED, "below the norm", says, name, refutes=not off <= _ROUNDED, trials=len(some_rounds(claims))
        )
