"""A round written down once more, as plainly as it can be: the code that is audited must come to the same bits.

Everything is drawn from the streams of a reproducible run, which are known; what each client's update is before
clipping comes from the engine. All else, the draw, clipping, the lattice, noise, the denominator, is done here by other
code than the package's own.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from nestegg.accounting import Array
from nestegg.audit.claims import Claims
from nestegg.audit.exact import Attacked, some_rounds
from nestegg.audit.findings import Finding
from nestegg.mechanism.randomness import Purpose
from nestegg.training import State


def replay(one: Attacked) -> Finding:
    """Compare rounds with their plain version, bit for bit; the federation's randomness must be reproducible."""
    wrong = []
    for t in some_rounds(one.claims):
        state = one.state(t)
        after = one.watched.round(state)
        if not torch.equal(after.velocity if _learns(one.claims) else after.model, _plain_round(one, state)):
            wrong.append(t + 1)
    says = f"rounds {', '.join(map(str, wrong))} differ from" if wrong else "rounds are, to the bit,"
    trials = len(some_rounds(one.claims))
    return Finding(
        one.arm, "replay", f"{says} what the plan says, done by plain code", refutes=bool(wrong), trials=trials
    )


def _plain_round(one: Attacked, state: State) -> torch.Tensor:
    """The next model; of a plan that learns its clip norm, the mean update."""
    claims, federation, t = one.claims, one.watched.federation, state.round
    owner = np.repeat(np.arange(len(claims.sizes)), claims.sizes.astype(np.int64))
    draws = federation.randomness.stream(Purpose.COHORT, t + 1).random(len(owner))
    std = claims.std(t, state.clip_norm)
    step = 2.0 ** (math.floor(math.log2(std)) - 22)
    total = np.zeros(federation.layout.size)
    for client in np.flatnonzero(draws < claims.rates[owner, t]).tolist():
        if client in one.canaries:
            (update,) = federation.engine.train_block(state.model, [client], t + 1, federation.rates[t])
            norm = claims.norm(int(owner[client]), t, state.clip_norm)
            total += _points(update.double().numpy(), norm, one, step)
    total += plain_noise(std, step, len(owner), len(total), federation.randomness.stream(Purpose.NOISE, t + 1))
    mean = torch.from_numpy(total * step / claims.expected[t]).to(state.model.dtype)
    return mean if _learns(claims) else state.model + mean


def _points(update: Array, norm: float, one: Attacked, step: float) -> Array:
    """An update, clipped to just below its norm, or its layers each to the same share of it, and truncated."""
    if not np.isfinite(update).all():
        return np.zeros_like(update)
    layers = one.watched.federation.layout.layers if one.claims.mechanics.clipping == "per-layer" else (slice(None),)
    points = update.copy()
    for layer in layers:
        limit, length = norm * (1.0 - 1e-6) / math.sqrt(len(layers)), math.sqrt(math.fsum(np.square(update[layer])))
        points[layer] *= (limit / length if length > limit else 1.0) / step
    return np.trunc(points)


def plain_noise(std: float, step: float, shares: int, size: int, stream: np.random.Generator) -> Array:
    """Two rounded draws whose variance is that of the shares, and of the roundings they would have one by one."""
    each = math.sqrt((np.square(std / step) + 2 * (shares - 1) / 12.0) / 2.0)
    return np.rint(each * stream.standard_normal(size)) + np.rint(each * stream.standard_normal(size))


def _learns(claims: Claims) -> bool:
    return claims.plan.about.learns_clip_norm
