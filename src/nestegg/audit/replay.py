"""A round written down once more, as plainly as it can be: the code that is audited must come to the same bits.

Everything is drawn from the streams of a reproducible run, which are known; what each client's update is before
clipping comes from the engine. All else, the draw, clipping, the lattice, noise, the denominator, a learnt clip norm
and the server's momentum, is done here by other code than the package's own. All of the state is compared: all of it is
released.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch

from nestegg.accounting import Array
from nestegg.audit.exact import Attacked, some_rounds
from nestegg.audit.findings import Finding
from nestegg.mechanism.randomness import Purpose
from nestegg.training import State


def replay(one: Attacked) -> Finding:
    """Compare rounds with their plain version, bit for bit; the federation's randomness must be reproducible."""
    wrong, gone = [], one.canaries[::2]
    for t in some_rounds(one.claims):
        # A velocity, so that momentum is seen.
        state = replace(one.state(t), velocity=torch.ones_like(one.state(t).model))
        drawn = _draw(one, t)
        same = _same(one.watched.round(state), _plain_round(one, state, drawn))
        absent = _same(
            one.watched.round(state, gone, cohort=one.canaries), _plain_round(one, state, one.canaries, gone)
        )
        wrong += [] if same and absent else [t + 1]
    says = f"rounds {', '.join(map(str, wrong))} differ from" if wrong else "rounds are, to the bit,"
    trials = 2 * len(some_rounds(one.claims))
    return Finding(
        one.arm, "replay", f"{says} what the plan says, done by plain code", refutes=bool(wrong), trials=trials
    )


def _same(after: State, plain: State) -> bool:
    norms = math.isclose(after.clip_norm, plain.clip_norm, rel_tol=1e-12)  # exponentials differ in their last bit
    return norms and torch.equal(after.model, plain.model) and torch.equal(after.velocity, plain.velocity)


def _draw(one: Attacked, t: int) -> list[int]:
    owner, stream = one.claims.owner, one.watched.federation.randomness.stream(Purpose.COHORT, t + 1)
    drawn: list[int] = np.flatnonzero(stream.random(len(owner)) < one.claims.rates[owner, t]).tolist()
    return drawn


def _plain_round(one: Attacked, state: State, drawn: Sequence[int], absent: Collection[int] = ()) -> State:
    """The next state, of those who are drawn and have not withdrawn."""
    claims, federation, t = one.claims, one.watched.federation, state.round
    std, clients = claims.std(t, state.clip_norm), claims.plan.clients
    step = 2.0 ** (math.floor(math.log2(std)) - 22)
    size, further = federation.layout.size, len(claims.side.shares)
    total, bits = np.zeros(size + further), 0.0
    for client in drawn:
        if client in absent or client not in (*one.canaries, *one.failing):
            continue
        (update,) = federation.engine.train_block(state.model, [client], t + 1, federation.rates[t])
        norm = claims.norm(int(claims.owner[client]), t, state.clip_norm)
        total[:size] += _points(update.double().numpy(), norm * claims.rest, one, step)
        is_below = float(torch.linalg.vector_norm(update.double())) <= norm * claims.rest
        bits += 0.5 if is_below else -0.5
        if claims.side.clip_share and bool(torch.isfinite(update).all()):  # canaries hold nothing back for a curve
            sign = 1.0 if is_below else -1.0
            total[size] += math.trunc(sign * norm * math.sqrt(claims.side.clip_share) * (1.0 - 1e-6) / step)
    total += plain_noise(std, step, clients, len(total), federation.randomness.stream(Purpose.NOISE, t + 1))
    mean = torch.from_numpy(total[:size] * step / claims.expected[t]).to(state.model.dtype)
    if not claims.plan.about.learns_clip_norm:
        norm = _learnt(one, state, total[size] * step) if claims.side.clip_share else state.clip_norm
        return replace(state, round=t + 1, model=state.model + mean, clip_norm=norm)
    server, spread = claims.mechanics.adaptive, claims.noise_of_bits(t)
    step = min(2.0 ** (math.floor(math.log2(spread)) - 22), 0.5)
    bits += step * plain_noise(spread, step, 1, 1, federation.randomness.stream(Purpose.BITS, t + 1))[0]
    norm = state.clip_norm * math.exp(server.step * (server.quantile - 0.5 - bits / claims.expected[t]))
    velocity = server.server_momentum * state.velocity + mean
    return State(t + 1, state.model + server.server_rate * velocity, norm, velocity)


def _learnt(one: Attacked, state: State, total: float) -> float:
    """The next clip norm, from the noisy sum of bits ±√f c_n: a mean over clients, weighted by q_n c_n."""
    claims, t, side = one.claims, state.round, one.claims.side
    norms = [claims.norm(group, t, state.clip_norm) for group in range(len(claims.sizes))]
    weight = math.fsum(claims.sizes * claims.rates[:, t] * norms) * math.sqrt(side.clip_share)
    change = min(max(side.step * (side.quantile - 0.5 - total / weight / 2.0), -10.0), 10.0)
    return min(max(state.clip_norm * math.exp(change), 1e-9), 1e9)


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
