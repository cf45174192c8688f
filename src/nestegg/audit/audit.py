"""An audit: every arm that can be attacked, group by group, within a time; what was found, and what was not tried."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nestegg
from nestegg.audit.attack import Attack, attack_code, plan_holds
from nestegg.audit.claims import Claims
from nestegg.audit.clock import Clock
from nestegg.audit.findings import FALSE_ALARMS, Judged, corrected
from nestegg.audit.folder import folder_findings
from nestegg.audit.own import performance_of
from nestegg.audit.tradeoff import Evidence
from nestegg.errors import InputError
from nestegg.planning import Plan
from nestegg.training import Federation, LocalTraining, Mechanics, Performance

MOST_GROUPS = 8
CAVEAT = (
    "Passing proves nothing: an audit can refute a promise and never confirm it. The promise rests on the proofs, and "
    "on the tests that check the code against them."
)


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
    evidence: tuple[Evidence, ...]
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


def audit(
    subject: Federation | Claims | Plan,
    *,
    seconds: float = 60.0,
    groups: Sequence[str] = (),
    clock: Clock | None = None,
    folder: Path | None = None,
    tell: Callable[[str, float], None] = lambda what, share: None,
) -> Audit:
    """Try to refute the promise of a plan, on the code, the model and the engine that carry it out.

    Nobody's data is touched: canaries take the places of clients. A plan alone is attacked on the crafted network, by
    default mechanics and local training; `Claims` say others.

    Args:
        subject: a federation; a plan; or a plan with its mechanics and local training.
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
    claims, federation = _claims(subject), subject if isinstance(subject, Federation) else None
    plan, clock = claims.plan, clock or Clock(seconds)
    if not plan.is_private:
        raise InputError("the plan has no noise: it promises nothing, so there is nothing to refute.")
    attack = Attack(claims, clock, tell, _groups(plan, groups))
    if len(attack.groups) < len(plan.groups):
        attack.missing.append(
            f"{len(plan.groups) - len(attack.groups)} of {len(plan.groups)} groups: the strictest, the loosest and "
            "some drawn at random were attacked, or those asked for"
        )
    if folder is not None:
        attack.tell("the run's folder", 0.0)
        attack.add(folder_findings(folder))
    if plan_holds(attack, plan):
        attack_code(attack, federation, performance_of(federation) if federation else Performance(engine="dense"))
    facts = _facts(plan, federation, attack)
    return Audit(facts, tuple(corrected(attack.findings)), tuple(attack.evidence), tuple(attack.missing))


def _claims(subject: Federation | Claims | Plan) -> Claims:
    if isinstance(subject, Federation):
        return Claims(subject.plan, subject.mechanics, subject.local)
    if isinstance(subject, Plan):
        return Claims(subject, Mechanics(), LocalTraining())
    if not isinstance(subject, Claims):
        raise InputError(f"an audit needs a Federation or a Plan; it is a {type(subject).__name__}.")
    return subject


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


def _facts(plan: Plan, federation: Federation | None, attack: Attack) -> dict[str, Any]:
    return {
        "plan": plan.digest,
        "method": plan.title,
        "delta": plan.delta,
        "rounds": plan.rounds,
        "clients": plan.clients,
        "groups": [plan.groups[group].group.name for group in attack.groups],
        "all_groups": len(plan.groups),
        "engine": federation.engine.name if federation else "dense",
        "instruction_set": federation.engine.instruction_set if federation else None,
        "processor": platform.machine(),
        "version": nestegg.__version__,
        "seconds": round(attack.clock.passed, 1),
        "interrupted": attack.clock.stopped,
        "false_alarms": FALSE_ALARMS,
    }
