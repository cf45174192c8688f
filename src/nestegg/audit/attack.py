"""The attack, arm after arm: plan, crafted network, the user's model, Flower; findings are kept as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from nestegg.audit import arms, own, statistics, tradeoff
from nestegg.audit.claims import Claims
from nestegg.audit.clock import Clock
from nestegg.audit.exact import exact_attacks, failing_clients
from nestegg.audit.findings import Finding
from nestegg.audit.replay import replay
from nestegg.audit.trials import Trials, gather
from nestegg.audit.twins import twin_runs
from nestegg.errors import InputError, VerificationError
from nestegg.extras import RUNS, needs
from nestegg.planning import Plan, verify
from nestegg.training import Federation, Performance

FEWEST = 100  # trials of a group that statistics are made of
_FLOWER = 0.15  # of the time, for Flower
_BRIEF = 5.0  # seconds, below which only the crafted network and the model are attacked
PLAN = "plan"


@dataclass
class Attack:
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
                self.missing.append(
                    f"{arm}: group {name!r} by statistics, for {own_trials} trials are too few: give more seconds"
                )
                continue
            self.add(statistics.of_group(arm, self.claims, trials, group))
            found, evidence = tradeoff.attack(arm, self.claims, trials, group)
            self.add(found)
            if arm == arms.CRAFTED:
                self.evidence.append(evidence)


def plan_holds(attack: Attack, plan: Plan) -> bool:
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


def attack_code(attack: Attack, federation: Federation | None, performance: Performance) -> None:
    """Attack the code, exactly and by statistics: what takes long, the crafted network's trials, comes last."""
    claims, groups, clock = attack.claims, attack.groups, attack.clock
    layers = len(federation.layout.layers) if federation and claims.mechanics.clipping == "per-layer" else 1
    attack.tell("crafted network, exactly", 0.0)
    one = arms.crafted_arm(claims, performance, groups, layers)
    attack.add(exact_attacks(one))
    attack.add(arms.below_the_norm(claims, performance, groups, layers))
    attack.add([replay(one), *([failing_clients(one)] if one.failing else [])])
    if federation is None:
        attack.missing.append("a model of one's own: none was given")
    elif not clock.stopped:
        _attack_model(attack, federation)
    if not clock.stopped:
        _attack_flower(attack)
    attack.tell("crafted network", clock.passed / clock.seconds)
    tell = lambda share: attack.tell("crafted network", share)  # noqa: E731
    attack.judge(arms.CRAFTED, gather(claims, performance, groups, layers=layers, go_on=clock.until(0.9, tell)))
    if clock.stopped:
        attack.missing.append("what would have come later: the audit was interrupted")


def _attack_model(attack: Attack, federation: Federation) -> None:
    claims, clock = attack.claims, attack.clock
    attack.tell("your model, exactly", 0.0)
    try:
        one = own.own_arm(federation, claims, attack.groups)
    except InputError as error:
        attack.missing.append(f"your model: {str(error).rstrip('.')}")
        return
    attack.add(exact_attacks(one))
    attack.add(failing_clients(failing) for failing in (one, own.raising_arm(federation, one)) if failing.failing)
    if clock.seconds < _BRIEF:
        attack.missing.append(f"twin runs: an audit of {clock.seconds:g} s has no time for them")
    else:
        attack.tell("twin runs", clock.passed / clock.seconds)
        _attack_runs(attack, federation)
    tell = lambda share: attack.tell("your model", share)  # noqa: E731
    try:
        attack.judge(own.OWN, own.trials_on(one, clock.until(0.35, tell), clock.until(0.6, tell)))
    except InputError as error:
        attack.missing.append(f"your model, by statistics: {str(error).rstrip('.')}")


def _attack_runs(attack: Attack, federation: Federation) -> None:
    try:
        needs("a run", *RUNS)
        attack.add(twin_runs(federation))
    except InputError as error:
        attack.missing.append(f"twin runs: {str(error).rstrip('.')}")


def _attack_flower(attack: Attack) -> None:
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
