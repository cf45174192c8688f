"""The user's own model as an arm: canaries with wild data, whose update is measured before it is looked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nestegg.accounting import Array
from nestegg.audit.arms import cast
from nestegg.audit.canaries import QUIET, nameless
from nestegg.audit.claims import Claims
from nestegg.audit.exact import Attacked
from nestegg.audit.trials import Noise, Trials, released
from nestegg.audit.watching import Watched
from nestegg.errors import InputError
from nestegg.mechanism.randomness import Randomness
from nestegg.planning import Plan
from nestegg.runs.configured import with_members
from nestegg.training import Federation, Performance
from nestegg.training.local import Samples

OWN = "your model"
Clients = NDArray[np.int64]

_SCALES = (1.0, 10.0, 100.0, 1e3, 1e4)  # of canaries' inputs, tried until updates are longer than their norms
_SAMPLES, _BATCH = 4, 16
_COARSE = 0.1  # of the noise, at which rounding adds less than one in a thousand to its variance


def own_arm(federation: Federation, claims: Claims, groups: Sequence[int]) -> Attacked:
    """Return canaries on a federation's own model, loss, optimiser and engine; nobody's data is used.

    Raises:
        InputError: no canary has an update.
    """
    canaries, owner, failing = cast(claims, groups)
    how = "with data that is no number"
    if not any(part.is_floating_point() for part in federation.clients.zeros):
        failing = ()  # whole numbers are always numbers
    best, share = None, 0.0
    for scale in _SCALES:
        data = [wild(federation, 0, 0.0)] * claims.plan.clients
        for client in (*canaries, *failing):
            data[client] = wild(federation, client, scale if client in canaries else np.nan)
        made = _like(federation, nameless(claims.plan), data)
        one = Attacked(OWN, claims, Watched(made), canaries, owner, failing, how)
        if (least := min(reached(one))) > share:
            best, share = one, least
        if share > 0.999:
            break
    if best is None:
        raise InputError("no canary has an update on this model: its training changes nothing, or fails.")
    return best


def raising_arm(federation: Federation, one: Attacked) -> Attacked:
    """Return the same canaries by name, loaded when they are drawn, beside some whose loading raises."""

    def raises() -> Any:
        raise RuntimeError("the data of this canary cannot be read")

    nobody, (_, _, failing) = wild(federation, 0, 0.0), cast(one.claims, sorted(set(one.owner)))
    names = [f"client-{number}" for number in range(one.claims.plan.clients)]
    data: dict[str, Any] = dict.fromkeys(names, nobody)
    for client in one.canaries:
        data[names[client]] = wild(federation, client, 1.0)
    for client in failing:
        data[names[client]] = raises
    made = _like(federation, with_members(one.claims.plan, names), data)
    return replace(one, watched=Watched(made), failing=failing, how="whose data cannot be read")


def trials_on(one: Attacked, go_on: Callable[[int], bool], first: Callable[[int], bool]) -> Trials:
    """Run the plan's rounds on the model as it was at first, with and without canaries' data, until told to stop.

    One canary of each group takes part. What the others of them contribute to a round is known to the adversary.

    Args:
        one: canaries on the model.
        go_on: asked with the number of passes that are done.
        first: the same in the first passes, without which there is nothing to judge.

    Raises:
        InputError: the model is too coarse beside its noise, or a pass takes too long.
    """
    _check_rounding(one)
    rounds = one.claims.plan.rounds
    groups = sorted(set(one.owner))
    clients = np.array([one.canaries[one.owner.index(group)] for group in groups])
    noise, passes = Noise(), 0
    parts: list[list[Array]] = []
    while not parts or go_on(passes):
        batch, goes_on = (_BATCH, go_on) if parts else (2, first)
        in_time = takewhile(lambda _, done=passes, asked=goes_on: asked(done), range(rounds))  # type: ignore[misc]
        views = [_views(one, clients, t, batch, noise) for t in in_time]
        if len(views) < rounds:
            break
        parts.append([np.stack(part, axis=-1).reshape(-1, len(views)) for part in zip(*views, strict=True)])
        passes += batch
    if not parts:
        raise InputError(f"there is no time for {rounds} rounds of it.")
    seen, signal, drawn = (np.concatenate(part) for part in zip(*parts, strict=True))
    group, present = np.tile(groups, passes), np.repeat(np.arange(passes) % 2 == 0, len(groups))
    return Trials(clients, group, present, seen, signal, drawn > 0.0, noise, Noise(), Noise(), passes)


def _check_rounding(one: Attacked) -> None:
    """Refuse a model whose weights are released too coarsely: their rounding would be taken for noise."""
    claims, model = one.claims, one.state(0).model
    stds = [claims.std(t, claims.plan.clip_norm) / claims.expected[t] for t in range(claims.plan.rounds)]
    spacing = float(model.abs().max()) * torch.finfo(model.dtype).eps
    if not claims.learns_clip_norm and spacing > _COARSE * min(stds):
        raise InputError(f"its weights are {spacing:.0e} apart, too coarse beside noise of {min(stds):.0e}.")


def _views(one: Attacked, clients: Clients, t: int, batch: int, noise: Noise) -> tuple[Array, Array, Array]:
    """One round, so many times: what is seen of each canary, its signal, and whether it was drawn: (time, canary)."""
    state, claims = one.state(t), one.claims
    std, others = claims.std(t, state.clip_norm), frozenset(one.canaries) - set(clients.tolist())
    points = [one.watched.contribution(state, [client]) for client in clients.tolist()]
    alone = torch.stack(points) * one.watched.clipping.step
    lengths = torch.linalg.vector_norm(alone, dim=1)
    directions = alone / lengths.clamp(min=torch.finfo(torch.float64).tiny)[:, None]
    some = np.linspace(0, alone.shape[1] - 1, min(QUIET, alone.shape[1])).astype(np.int64)
    seen, was_drawn, quiet = [], [], []
    for number in range(batch):
        absent = others if number % 2 == 0 else others | set(clients.tolist())
        after = one.watched.round(state, absent)
        drawn = np.isin(clients, np.array(one.watched.drawn, np.int64))
        added = torch.from_numpy(drawn.astype(np.float64)) * float(number % 2 == 0)
        rest = (released(claims, state, after, one.watched.said) * float(claims.expected[t]) - added @ alone) / std
        seen.append((directions @ rest + added * lengths / std).numpy())
        was_drawn.append(drawn.astype(np.float64))
        quiet.append(rest.numpy()[some])
    noise.add(np.stack(quiet), None)
    return np.stack(seen), np.tile(lengths.numpy() / std, (batch, 1)), np.stack(was_drawn)


def reached(one: Attacked) -> list[float]:
    """Return how long each canary's clipped update is in the first round, as a share of its norm."""
    state, lengths = one.state(0), []
    for client, group in zip(one.canaries, one.owner, strict=True):
        points = one.watched.contribution(state, [client])
        lengths.append(one.length(points) / one.claims.norm(group, 0, state.clip_norm))
    return lengths


def wild(federation: Federation, client: int, scale: float) -> Samples:
    """Data of a canary that fits the model: noise of a size, and one of two labels; a scale of 0 is no data."""
    x, y = federation.clients.zeros
    count, generator = _SAMPLES * int(scale != 0.0), torch.Generator().manual_seed(client)
    inputs = torch.randn((count, *x.shape[1:]), generator=generator) * scale
    if not x.is_floating_point():  # tokens: any model has two
        inputs = torch.randint(2, inputs.shape, generator=generator)
    if y.is_floating_point():
        return inputs.to(x.dtype), torch.randn((count, *y.shape[1:]), generator=generator) * scale
    return inputs.to(x.dtype), torch.randint(2, (count, *y.shape[1:]), generator=generator).to(y.dtype)


def performance_of(federation: Federation) -> Performance:
    """Return the engine and the processes that a federation has: canaries have too little data to be given the same."""
    there = federation.performance.cluster is not None  # where workers come and go
    workers = federation.performance.workers if there else federation.workers.count
    return replace(federation.performance, engine=federation.engine.name, workers=workers)


def _like(federation: Federation, plan: Plan, data: Any) -> Federation:
    """The same federation of other clients, whose cohorts and noise are secret."""
    return Federation(
        plan,
        federation.model,
        data,
        local=federation.local,
        mechanics=replace(federation.mechanics, randomness=Randomness(federation.randomness.seed)),
        performance=performance_of(federation),
    )
