"""Bugs planted in the mechanism, one after the other: the audit must find each, and pass the code as it is.

    python -m bench.planted                   all of them, and twenty audits of the code as it is; writes the table
    python -m bench.planted --only "noise halved"

The table goes into docs/reliability.md, between the two comments that say so.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nestegg
from nestegg.audit import Audit, audit
from nestegg.flower import aggregation
from nestegg.mechanism import Lattice
from nestegg.mechanism.randomness import Purpose, Randomness
from nestegg.planning import Plan
from nestegg.runs.task import Task
from nestegg.training import Federation, adaptive
from nestegg.training.blocks import Clipping
from nestegg.training.dense import DenseEngine

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- planted bugs: python -m bench.planted -->", "<!-- end of planted bugs -->"
CLEAN = 20
Bug = Callable[[], Any]


def subject(method: str = "spend-as-you-go") -> Federation:
    """Three groups that save and spend, a network of two layers, data that nobody looks at."""
    groups = [
        nestegg.Group("strict", 16, nestegg.Budget(5.0), saving_rate=0.5),
        nestegg.Group("middle", 16, nestegg.Budget(10.0), saving_rate=0.6),
        nestegg.Group("open", 16, nestegg.Budget(20.0), saving_rate=0.7),
    ]
    plan = nestegg.plan(groups, rounds=8, method=method, clip_norm=5.0)
    data = [(torch.randn(6, 8), torch.randint(3, (6,))) for _ in range(plan.clients)]
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return Federation(plan, model, data, local=nestegg.LocalTraining(epochs=1, batch_size=4))


@contextmanager
def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Let a function be another one for a while, made from it."""
    before = getattr(owner, name)
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def noise_times(factor: float) -> Bug:
    """Plant noise of another size."""

    def make(noise: Any) -> Any:
        return lambda self, share, *rest: noise(self, share * factor, *rest)

    return lambda: patched(Lattice, "noise", make)


def clip_times(factor: Callable[[Clipping], float]) -> Bug:
    """Plant clip norms of another size."""

    def make(total: Any) -> Any:
        return lambda self, updates: total(replace(self, norms=self.norms * factor(self)), updates)

    return lambda: patched(Clipping, "sum", make)


def rates(change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Bug:
    """Plant other sampling rates; they are arrays of (group, round)."""

    def cohort(self: Federation, round_: int) -> list[int]:
        own = change(np.array([row.sampling_rate for row in self.plan.groups]))[self.group, round_ - 1]
        draws = self.randomness.stream(Purpose.COHORT, round_).random(self.plan.clients)
        return [int(client) for client in np.flatnonzero(draws < own)]

    return lambda: patched(Federation, "cohort", lambda _: cohort)


@contextmanager
def fewer_shares(lost: dict[str, int]) -> Iterator[None]:
    """Leave out so many shares of noise."""
    with patched(
        Lattice, "noise", lambda noise: lambda self, share, n, *rest: noise(self, share, max(n - lost["n"], 0), *rest)
    ):
        yield


@contextmanager
def shares_of_absent() -> Iterator[None]:
    """Plant a round that forgets the shares of those who have withdrawn."""
    lost = {"n": 0}

    def make(round_: Any) -> Any:
        def counted(self: Federation, state: Any, absent: Any = ()) -> Any:
            lost["n"] = len(absent)
            return round_(self, state, absent)

        return counted

    with fewer_shares(lost), patched(Federation, "round", make):
        yield


@contextmanager
def shares_of_dropouts() -> Iterator[None]:
    """Plant a server that forgets the shares of those whose replies it could not use."""
    lost = {"n": 0}

    def make_add(add: Any) -> Any:
        def counted(self: Any, *arguments: Any) -> None:
            try:
                add(self, *arguments)
            except nestegg.InputError:
                lost["n"] += 1
                raise

        return counted

    def make_finish(finish: Any) -> Any:
        def counted(self: Any, *arguments: Any) -> Any:
            with fewer_shares(lost):
                found = finish(self, *arguments)
            lost["n"] = 0
            return found

        return counted

    with (
        patched(aggregation.NoisySum, "add", make_add),
        patched(aggregation.NoisySum, "finish", make_finish),
    ):
        yield


def other_groups_norm() -> Any:
    """Plant clip norms of the group that comes next."""

    def make(norms_and_noise: Any) -> Any:
        def rolled(self: Federation, state: Any, t: int, expected: float) -> Any:
            _, noise = norms_and_noise(self, state, t, expected)
            return np.array([row.clip_norm[t] for row in self.plan.groups])[(self.group + 1) % 3], noise

        return rolled

    return patched(Federation, "_norms_and_noise", make)


def same_noise() -> Any:
    """Plant a generator that begins anew in every round."""

    def make(stream: Any) -> Any:
        def same(self: Randomness, purpose: Purpose, *rest: Any, **options: Any) -> Any:
            is_noise = purpose is Purpose.NOISE and not self.reproducible
            return np.random.default_rng(7) if is_noise else stream(self, purpose, *rest, **options)

        return same

    return patched(Randomness, "stream", make)


def single_precision() -> Any:
    """Plant noise that is drawn in single precision."""

    def noise(self: Lattice, share: float, shares: int, size: int, stream: np.random.Generator) -> Any:
        std = share * math.sqrt(shares) / self.step
        return np.rint(stream.standard_normal(size, dtype=np.float32) * np.float32(std)).astype(np.float64)

    return patched(Lattice, "noise", lambda _: noise)


def rounding_by_company() -> Any:
    """Plant updates whose last bits depend on how many clients share a block."""

    def make(train: Any) -> Any:
        def uneven(self: DenseEngine, model: Any, block: Any, *rest: Any) -> Any:
            updates = train(self, model, block, *rest)
            updates[:, ::2] *= 1.0 + 1e-6 * len(block)
            return updates

        return uneven

    return patched(DenseEngine, "_train", make)


def label_counts() -> Any:
    """Plant counts of clients' labels in the summary of a run."""

    def make(summary: Any) -> Any:
        def counted(self: Task, *arguments: Any) -> Any:
            clients = self.federation.clients
            labels = torch.cat([clients.samples(n)[1] for n in range(len(clients))])
            return {**summary(self, *arguments), "labels": torch.bincount(labels).tolist()}

        return counted

    return patched(Task, "_summary", make)


def relabelled(plan: Plan) -> Plan:
    """Give the rows of the loosest group to the strictest."""
    strict, *middle, loose = plan.groups
    return replace(plan, groups=(replace(loose, group=strict.group), *middle, loose))


BUGS: dict[str, Bug] = {
    "noise halved": noise_times(0.5),
    "noise 3 % low": noise_times(0.97),
    "noise 1 % low": noise_times(0.99),
    "another group's clip norm": other_groups_norm,
    "clip 2 % wide": clip_times(lambda _: 1.02),
    "spending rate while saving": rates(lambda q: np.broadcast_to(q[:, -1:], q.shape)),
    "rate + 0.03": rates(lambda q: np.minimum(q + 0.03, 1.0)),
    "missing shares of the absent": shares_of_absent,
    "missing shares of dropouts": shares_of_dropouts,
    "no √m per layer": clip_times(lambda one: math.sqrt(len(one.layers or (slice(None),)))),
    "the same noise every round": same_noise,
    "wrong clip unit": lambda: patched(Federation, "_unit", lambda _: lambda self, t: 1.0),
    "bits' noise halved": lambda: patched(adaptive, "_noise", lambda n: lambda std, stream: n(std / 2.0, stream)),
    "float32 noise": single_precision,
    "a block whose rounding depends on company": rounding_by_company,
    "a relabelled plan": nullcontext,  # it is the plan that is changed, not the code
    "a hundredth of the clip norm": clip_times(lambda _: 0.01),
    "a raising client that stops the round": lambda: patched(DenseEngine, "train_block", lambda _: DenseEngine._train),
    "label counts in a report": label_counts,
}
THOROUGH = ("noise 1 % low",)


def audited(name: str, seconds: float) -> Audit:
    """Audit the code with one bug planted."""
    whole = subject("adaptive-clipping" if name.startswith("bits") else "spend-as-you-go")
    if name == "a relabelled plan":
        return audit(relabelled(whole.plan), seconds=seconds)
    with BUGS[name]():
        return audit(whole, seconds=seconds)


def found(name: str, seconds: float) -> str:
    """A row of the table: what found the bug, and when; raises if nothing did."""
    result = audited(name, seconds)
    if not result.refutations:
        raise SystemExit(f"{name}: not found in {seconds:g} s")
    first = min(result.refutations, key=lambda one: one.finding.seconds).finding
    attacks = list(dict.fromkeys(one.finding.attack for one in result.refutations))
    more = f" and {len(attacks) - 3} more" if len(attacks) > 3 else ""
    thorough = " (thorough)" if name in THOROUGH else ""
    return f"| {name}{thorough} | {', '.join(attacks[:3])}{more} | {first.seconds:.1f} |"


def main() -> None:
    """Plant what is asked for, and write the table if that is everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=BUGS)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one audit")
    options = parser.parse_args()
    rows = []
    for name in [options.only] if options.only else BUGS:
        rows.append(found(name, options.seconds * (10.0 if name in THOROUGH else 1.0)))
        print(rows[-1], flush=True)
    if options.only:
        return
    alarms = 0
    for number in range(CLEAN):
        whole = subject("adaptive-clipping" if number % 4 == 3 else "spend-as-you-go")
        alarms += len(audit(whole, seconds=options.seconds).refutations)
        print(f"audit {number + 1} of {CLEAN} of the code as it is: {alarms} false alarms so far", flush=True)
    heads = ["| bug | found by | after s |", "|---|---|---|"]
    last = f"| the code as it is, {CLEAN} audits | {alarms} refutations | |"
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join([*heads, *rows, last]) + f"\n{END}{after}", encoding="utf-8")
    if alarms:
        raise SystemExit("the code as it is was refuted")


if __name__ == "__main__":
    main()
