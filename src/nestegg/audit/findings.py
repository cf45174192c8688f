"""What an audit finds: one value for each attack, and their correction for how many there were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FALSE_ALARMS = 1e-3  # the share of audits of correct code that may end with a refutation


@dataclass(frozen=True)
class Finding:
    """The outcome of one attack.

    Attributes:
        arm: what was attacked: "plan", "crafted network", "your model", "flower", "run".
        attack: its name, such as "noise".
        group: whose promise was attacked; None for everybody's.
        says: what was seen, beside what is claimed, in a sentence.
        p: how likely such a sight is if the promise holds, at most; None where the attack is exact.
        refutes: of an exact attack, whether it succeeded.
        trials: how many there were.
        seconds: from the start of the audit to this finding.
    """

    arm: str
    attack: str
    says: str
    group: str | None = None
    p: float | None = None
    refutes: bool = False
    trials: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Judged:
    """A finding among all others.

    Attributes:
        finding: the attack.
        p: its p-value times the number of attacks that have one (Bonferroni), at most 1; None where it is exact.
        refutes: whether it refutes the promise at the audit's rate of false alarms.
    """

    finding: Finding
    p: float | None
    refutes: bool

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON-ready values."""
        one = self.finding
        return {
            "arm": one.arm,
            "attack": one.attack,
            "group": one.group,
            "says": one.says,
            "p": one.p,
            "p_corrected": self.p,
            "refutes": self.refutes,
            "trials": one.trials,
            "seconds": round(one.seconds, 2),
        }


def corrected(findings: Sequence[Finding]) -> list[Judged]:
    """Return findings with p-values for as many attacks as there were.

    >>> rare = Finding("plan", "noise", "", p=1e-4)
    >>> [(one.p, one.refutes) for one in corrected([rare, Finding("plan", "signal", "", p=0.3)])]
    [(0.0002, True), (0.6, False)]
    """
    count = sum(one.p is not None for one in findings)
    judged = []
    for one in findings:
        p = None if one.p is None else min(1.0, one.p * count)
        judged.append(Judged(one, p, one.refutes if p is None else p <= FALSE_ALARMS))
    return judged
