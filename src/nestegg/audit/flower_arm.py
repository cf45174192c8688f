"""Flower as an arm of the audit: whole rounds of the real strategy, whoever replies, is lost, fails or withdraws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nestegg.accounting import Array
from nestegg.audit import statistics
from nestegg.audit.claims import Claims
from nestegg.audit.findings import Finding
from nestegg.audit.flower_exact import exact_findings
from nestegg.audit.flower_stage import ALL_REPLY, FAILING, FLOWER, LOST, Nodes, Stage, perform, withdraw
from nestegg.audit.trials import Noise, Trials
from nestegg.errors import InputError
from nestegg.flower.terms import check_method
from nestegg.planning import Plan

MOST = 500  # clients that are tried in one process
_WITHDRAWING = 50  # of them, at most
_KINDS = (ALL_REPLY, LOST, FAILING)

GoOn = Callable[[int], bool]


def flower_findings(claims: Claims, groups: Sequence[int], until: Callable[[float], GoOn]) -> Iterator[Finding]:
    """Attack a plan as Flower carries it out, in this process.

    Args:
        claims: what is promised.
        groups: whose promises are attacked.
        until: gives what rounds ask whether to go on, for a share of the time of this arm.

    Raises:
        InputError: Flower cannot carry the plan out, or has too many clients for one process.
    """
    check_method(claims.plan)
    if claims.plan.clients > MOST:
        raise InputError(f"the plan has {claims.plan.clients} clients; up to {MOST} are tried in one process.")
    stage = Stage.of(claims, groups)
    yield from exact_findings(stage, groups)
    rounds: list[_Round] = []
    try:
        while not rounds or until(1.0)(len(rounds)):
            rounds += _once(stage, until(0.5 if not rounds else 1.0), number=len({one.run for one in rounds}))
            if claims.plan.rounds > 1:
                rounds += _once(stage, until(1.0), number=len({one.run for one in rounds}), leaving=True)
    except Exception as error:
        says = f"a round stops with {type(error).__name__}: {error}"
        yield Finding(FLOWER, "rounds", says, refutes=True, trials=len(rounds))
    if rounds:
        yield from _judged(stage, groups, rounds)


@dataclass(frozen=True, eq=False)
class _Round:
    """What is seen of a round, in units of its noise.

    Attributes:
        run: to which it belongs.
        t: its number in the plan, from 0.
        kind: what happened in it.
        along: along the directions of the canaries.
        quiet: where nobody has a direction.
        drawn: who was asked.
        counted: whose replies arrived.
        gone: who had withdrawn.
        clip_norm: of the round, before its unit.
    """

    run: int
    t: int
    kind: str
    along: Array
    quiet: Array
    drawn: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    gone: tuple[int, ...]
    clip_norm: float

    @property
    def attack(self) -> str:
        """What its noise is compared for."""
        return "noise after withdrawals" if self.gone else f"noise where {self.kind}"


def _once(stage: Stage, go_on: GoOn, *, number: int, leaving: bool = False) -> list[_Round]:
    """Carry out the plan once, as far as there is time: one round of each kind in any case.

    Args:
        stage: who is who.
        go_on: asked after each round.
        number: of this run.
        leaving: whether half of the clients, or as many as there is time for, withdraw after the first round.
    """
    nodes, rounds, claims = Nodes(stage), list[_Round](), stage.claims
    everybody = np.arange(len(stage.owner))
    leavers = tuple(everybody[1::2][:_WITHDRAWING].tolist()) if leaving else ()
    before, norm = np.zeros(0), claims.plan.clip_norm

    def watch(ledger: Path, done: int, model: Array, following: float) -> bool:
        nonlocal before, norm
        if done:
            t = done - 1
            change = (model - before) * claims.expected[t] / claims.std(t, norm)
            drawn, counted = (np.isin(everybody, list(those)) for those in (nodes.drawn, nodes.counted))
            gone = leavers if t else ()
            rounds.append(_Round(number, t, nodes.kind, *stage.parts(change), drawn, counted, gone, norm))
        if leavers and done == 1:
            withdraw(stage, ledger, leavers)
        before, norm, nodes.kind = model, following, ALL_REPLY if leaving else _KINDS[done % len(_KINDS)]
        nodes.drawn.clear()
        nodes.counted.clear()
        return done < len(_KINDS) or go_on(done)

    perform(stage, nodes, watch)
    return rounds


def _judged(stage: Stage, groups: Sequence[int], rounds: Sequence[_Round]) -> Iterator[Finding]:
    """Attack by the statistics of rounds."""
    kinds: dict[str, Noise] = defaultdict(Noise)
    for one in rounds:
        kinds[one.attack].add(one.quiet[None, :], None)
    for attack, noise in kinds.items():
        yield statistics.noise_size(FLOWER, attack, noise)
    whole = Noise()
    for run in _runs(rounds):
        whole.add(np.stack([one.quiet for one in run]), None)
    yield from (statistics.noise_repeated(FLOWER, neighbours, whole) for neighbours in whole.products)
    asked = sum(int(one.drawn[list(one.gone)].sum()) for one in rounds)
    if any(one.gone for one in rounds):
        says = f"clients that had withdrawn were asked {asked} times"
        yield Finding(FLOWER, "withdrawals", says, refutes=asked > 0, trials=sum(bool(one.gone) for one in rounds))
    for group in groups:
        yield from _of_group(stage, group, rounds)


def _of_group(stage: Stage, group: int, rounds: Sequence[_Round]) -> Iterator[Finding]:
    claims = stage.claims
    whole = [run for run in _runs(rounds) if not run[-1].gone]
    if whole:
        # Rounds of which there are most in all: a run that was cut short counts only if little is lost by that.
        length = max(map(len, whole), key=lambda least: least * sum(len(run) >= least for run in whole))
        runs = [run[:length] for run in whole if len(run) >= length]
        drawn = np.concatenate([np.stack([one.drawn for one in run], axis=1) for run in runs])
        owner = np.tile(stage.owner, len(runs))
        shorter = replace(claims, plan=_first(claims.plan, length))
        yield from statistics.sampling(FLOWER, shorter, _trials(owner, drawn, np.zeros(drawn.shape), drawn), group)
    own = [(number, client) for number, client in enumerate(stage.canaries) if stage.owner[client] == group]
    whose = [(one, number) for one in rounds for number, client in own if one.counted[client]]
    if whose:
        along = np.array([[one.along[number]] for one, number in whose])
        signal = np.array(
            [
                [claims.rest * claims.norm(group, one.t, one.clip_norm) / claims.std(one.t, one.clip_norm)]
                for one, _ in whose
            ]
        )
        trials = _trials(np.full(len(whose), group), along, signal, np.ones(along.shape))
        yield replace(statistics.signal(FLOWER, trials, group), group=claims.plan.groups[group].group.name)


def _trials(owner: NDArray[np.int64], seen: Array, signal: Array, drawn: Array) -> Trials:
    """Trials of so many clients, all of whom have data."""
    everybody, present = np.arange(len(owner)), np.ones(len(owner), bool)
    return Trials(everybody, owner, present, seen, signal, drawn.astype(bool), Noise(), Noise(), Noise(), 1)


def _runs(rounds: Sequence[_Round]) -> list[list[_Round]]:
    found: dict[int, list[_Round]] = defaultdict(list)
    for one in rounds:
        found[one.run].append(one)
    return list(found.values())


def _first(plan: Plan, rounds: int) -> Plan:
    """The first rounds of a plan, to compare rates with."""
    rows = (replace(row, sampling_rate=row.sampling_rate[:rounds]) for row in plan.groups)
    return replace(plan, groups=tuple(rows))
