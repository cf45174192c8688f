"""An audit: every arm that can be attacked, group by group, within a time; what was found, and what was not tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import nestegg
from nestegg.audit import arms, own, statistics, tradeoff
from nestegg.audit.claims import Claims
from nestegg.audit.exact import exact_attacks, failing_clients
from nestegg.audit.findings import FALSE_ALARMS, Finding, Judged, corrected
from nestegg.audit.folder import folder_findings
from nestegg.audit.replay import replay
from nestegg.audit.trials import Trials, gather
from nestegg.audit.twins import twin_runs
from nestegg.errors import InputError, VerificationError
from nestegg.extras import RUNS, needs
from nestegg.planning import Plan, verify
from nestegg.training import Federation, LocalTraining, Mechanics, Performance

MOST_GROUPS = 8
FEWEST = 100  # trials of a group that statistics are made of
_FLOWER = 0.15  # of the time, for Flower
_BRIEF = 2.0  # seconds, below which only the crafted network and the model are attacked
PLAN = "plan"
CAVEAT = (
    "Passing proves nothing: an audit can refute a promise and never confirm it. The promise rests on the proofs, and "
    "on the tests that check the code against them."
)


class Clock:
    """How long an audit may take, and whether somebody has stopped it.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds > 0.0:
            raise InputError(f"seconds = {seconds!r} must be above 0.")
        self.started, self.seconds, self.stopped = time.monotonic(), float(seconds), False

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def until(self, share: float, tell: Callable[[float], None]) -> Callable[[int], bool]:
        """Return what trials ask whether to go on: until a share of all the time has passed."""

        def go_on(passes: int) -> bool:
            tell(min(self.passed / self.seconds, 1.0))
            return not self.stopped and self.passed < share * self.seconds

        return go_on

    def stop(self) -> None:
        """End the audit soon, with what was found so far."""
        self.stopped = True


@dataclass(frozen=True)
class Audit:
    """What was attacked and what came of it.

    Attributes:
        facts: what the audit was of, and how it was made.
        findings: of all attacks, corrected for their number.
        evidence: for each group, how far the attack on its trade-off curve came.
        not_attacked: what was left out, and why.
    """

    facts: dict[str, Any]
    findings: tuple[Judged, ...]
    evidence: tuple[tradeoff.Evidence, ...]
    not_attacked: tuple[str, ...]

    @property
    def refutations(self) -> tuple[Judged, ...]:
        """Attacks that succeeded."""
        return tuple(one for one in self.findings if one.refutes)

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON-ready values."""
        return {
            "format": "nestegg-audit/1",
            "refuted": bool(self.refutations),
            **self.facts,
            "findings": [one.to_dict() for one in self.findings],
            "evidence": [asdict(one) for one in self.evidence],
            "not_attacked": list(self.not_attacked),
            "caveat": CAVEAT,
        }


@dataclass
class _Attack:
    """An audit in the making."""

    claims: Claims
    clock: Clock
    tell: Callable[[str, float], None]
    groups: tuple[int, ...]
    findings: list[Finding] = field(default_factory=list)
    evidence: list[tradeoff.Evidence] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        """Keep findings as they come, each with its time."""
        for one in findings:
            self.findings.append(replace(one, seconds=self.clock.passed))

    def judge(self, arm: str, trials: Trials) -> None:
        """Attack by the statistics of trials."""
        self.tell(f"{arm}: {len(trials.group)} trials", min(self.clock.passed / self.clock.seconds, 1.0))
        self.add(statistics.of_everybody(arm, trials))
        for group in self.groups:
            own_trials, name = int((trials.group == group).sum()), self.claims.plan.groups[group].group.name
            if own_trials < FEWEST:
                self.missing.append(f"{arm}: group {name!r} by statistics, for {own_trials} trials are too few")
                continue
            self.add(statistics.of_group(arm, self.claims, trials, group))
            found, evidence = tradeoff.attack(arm, self.claims, trials, group)
            self.add(found)
            if arm == arms.CRAFTED:
                self.evidence.append(evidence)


def audit(
    subject: Federation | Plan,
    *,
    seconds: float = 60.0,
    groups: Sequence[str] = (),
    clock: Clock | None = None,
    folder: Path | None = None,
    tell: Callable[[str, float], None] = lambda what, share: None,
) -> Audit:
    """Try to refute the promise of a plan, on the code, the model and the engine that carry it out.

    Nobody's data is touched: canaries take the places of clients. A plan alone is attacked on the crafted network, with
    default mechanics and local training.

    Args:
        subject: a federation, or a plan.
        seconds: to spend, about.
        groups: names of those to attack; by default all, or eight of more.
        clock: that somebody else may stop; by default one of so many seconds.
        folder: of a run by this plan, whose releasable part is attacked, too.
        tell: hears what is done, and which share of the time has passed.

    Raises:
        InputError: there is no noise and so no promise, or there is no such group.

    >>> plan = nestegg.plan([nestegg.Group("all", 20, nestegg.Budget(5.0))], rounds=3)
    >>> audit(plan, seconds=0.5).refutations
    ()
    """
    federation = subject if isinstance(subject, Federation) else None
    plan = subject.plan if isinstance(subject, Federation) else subject
    if not isinstance(plan, Plan) or not plan.is_private:
        raise InputError("the plan has no noise: it promises nothing, so there is nothing to refute.")
    local, mechanics = (federation.local, federation.mechanics) if federation else (LocalTraining(), Mechanics())
    clock = clock or Clock(seconds)
    attack = _Attack(Claims(plan, mechanics, local), clock, tell, _groups(plan, groups))
    if len(attack.groups) < len(plan.groups):
        attack.missing.append(
            f"{len(plan.groups) - len(attack.groups)} of {len(plan.groups)} groups: the strictest, the loosest and "
            "some drawn at random were attacked, or those asked for"
        )
    if folder is not None:
        attack.tell("the run's folder", 0.0)
        attack.add(folder_findings(folder))
    if _plan_holds(attack, plan):
        engine = federation.engine.name if federation else "dense"
        performance = replace(federation.performance if federation else Performance(), engine=engine)
        _attack_code(attack, federation, performance)
    facts = _facts(plan, federation, attack)
    return Audit(facts, tuple(corrected(attack.findings)), tuple(attack.evidence), tuple(attack.missing))


def _groups(plan: Plan, names: Sequence[str]) -> tuple[int, ...]:
    known = {row.group.name: number for number, row in enumerate(plan.groups)}
    if unknown := [name for name in names if name not in known]:
        some = ", ".join(list(known)[:10])
        raise InputError(f"groups = {unknown[0]!r} must be among the plan's groups: {some}.")
    if names:
        return tuple(sorted({known[name] for name in names}))
    if len(known) <= MOST_GROUPS:
        return tuple(range(len(known)))
    budgets = [row.group.budget.epsilon for row in plan.groups]
    ends = {int(np.argmin(budgets)), int(np.argmax(budgets))}
    rest = [number for number in range(len(known)) if number not in ends]
    drawn = np.random.default_rng().choice(rest, MOST_GROUPS - len(ends), replace=False)
    return tuple(sorted(ends | set(drawn.tolist())))


def _plan_holds(attack: _Attack, plan: Plan) -> bool:
    """Attack the plan's own numbers: a judge recomputes them from its rows."""
    attack.tell("the plan's own numbers", 0.0)
    try:
        verdicts = verify(plan)
    except VerificationError as error:
        attack.add([Finding(PLAN, "budgets", str(error), refutes=True)])
        attack.missing.append("everything else: no code may be run by this plan")
        return False
    most = max(one.epsilon / row.group.budget.epsilon for one, row in zip(verdicts, plan.groups, strict=True))
    says = f"recomputed from the rows, nobody spends more than {most:.4f} of its budget"
    attack.add([Finding(PLAN, "budgets", says, trials=len(verdicts))])
    return True


def _attack_code(attack: _Attack, federation: Federation | None, performance: Performance) -> None:
    claims, groups, clock = attack.claims, attack.groups, attack.clock
    layers = len(federation.layout.layers) if federation and claims.mechanics.clipping == "per-layer" else 1
    attack.tell("crafted network, exactly", 0.0)
    one = arms.crafted_arm(claims, performance, groups, layers)
    attack.add(exact_attacks(one))
    attack.add(arms.below_the_norm(claims, performance, groups, layers))
    attack.add([replay(one), *([failing_clients(one)] if one.failing else [])])
    if federation is None:
        attack.missing.append("a model: there is only a plan, so local training, clipping and engine are the defaults")
    elif not clock.stopped:
        _attack_model(attack, federation)
    if not clock.stopped:
        _attack_flower(attack)
    attack.tell("crafted network", clock.passed / clock.seconds)
    tell = lambda share: attack.tell("crafted network", share)  # noqa: E731
    attack.judge(arms.CRAFTED, gather(claims, performance, groups, layers=layers, go_on=clock.until(0.9, tell)))
    if clock.stopped:
        attack.missing.append("what would have come later: the audit was interrupted")


def _attack_model(attack: _Attack, federation: Federation) -> None:
    claims, clock = attack.claims, attack.clock
    attack.tell("your model, exactly", 0.0)
    try:
        one = own.own_arm(federation, claims, attack.groups)
    except InputError as error:
        attack.missing.append(f"your model: {error}")
        return
    attack.add(exact_attacks(one))
    attack.add(failing_clients(failing) for failing in (one, own.raising_arm(federation, one)) if failing.failing)
    if clock.seconds < _BRIEF:
        attack.missing.append(f"twin runs: an audit of {clock.seconds:g} s has no time for them")
    else:
        attack.tell("twin runs", clock.passed / clock.seconds)
        _attack_runs(attack, federation)
    tell = lambda share: attack.tell("your model", share)  # noqa: E731
    attack.judge(own.OWN, own.trials_on(one, clock.until(0.35, tell)))


def _attack_runs(attack: _Attack, federation: Federation) -> None:
    try:
        needs("a run", *RUNS)
        attack.add(twin_runs(federation))
    except InputError as error:
        attack.missing.append(f"twin runs: {str(error).rstrip('.')}")


def _attack_flower(attack: _Attack) -> None:
    clock, began = attack.clock, attack.clock.passed / attack.clock.seconds

    def until(share: float) -> Callable[[int], bool]:
        return clock.until(began + _FLOWER * share, lambda passed: attack.tell("Flower, in this process", passed))

    try:
        needs("it", "ledger", "flower")
        if clock.seconds < _BRIEF:
            raise InputError(f"an audit of {clock.seconds:g} s has no time for it.")
        from nestegg.audit.flower_arm import flower_findings  # Flower is an extra, and takes seconds to import

        attack.add(flower_findings(attack.claims, attack.groups, until))
    except InputError as error:
        attack.missing.append(f"Flower: {str(error).rstrip('.')}")


def _facts(plan: Plan, federation: Federation | None, attack: _Attack) -> dict[str, Any]:
    return {
        "plan": plan.digest,
        "method": plan.title,
        "delta": plan.delta,
        "rounds": plan.rounds,
        "clients": plan.clients,
        "groups": [plan.groups[group].group.name for group in attack.groups],
        "all_groups": len(plan.groups),
        "engine": federation.engine.name if federation else "dense",
        "version": nestegg.__version__,
        "seconds": round(attack.clock.passed, 1),
        "interrupted": attack.clock.stopped,
        "false_alarms": FALSE_ALARMS,
    }
