"""Plans that are known to keep their promises, remembered by what they decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from nestegg.planning.plan import Plan

Promise = tuple[str, tuple[float | None, ...]]


@dataclass
class Remembered:
    """Plans that were computed from budgets, or checked, in this process; the oldest of too many is forgotten.

    A plan is told by its digest, so that one that comes back from a file is known, too. To digest a large plan takes
    longer than to make it, so that waits until somebody asks for another plan than those that were noted.

    Attributes:
        most: how many are remembered.

    >>> from nestegg import Budget, Group, plan
    >>> made, known = plan([Group("all", 10, Budget(10.0))], rounds=5), Remembered()
    >>> made in known, known.note(made), made in known
    (False, None, True)
    """

    most: int = 4096
    _promises: dict[Promise, None] = field(default_factory=dict)
    _noted: WeakValueDictionary[int, Plan] = field(default_factory=WeakValueDictionary)  # by id, not digested yet

    def note(self, plan: Plan) -> None:
        """Note a plan that keeps its promises."""
        self._noted[id(plan)] = plan
        if len(self._noted) > self.most:
            self._digest()

    def __contains__(self, plan: Plan) -> bool:
        if self._noted.get(id(plan)) is plan:
            return True
        self._digest()
        return _promise(plan) in self._promises

    def _digest(self) -> None:
        for plan in list(self._noted.values()):
            self._promises[_promise(plan)] = None
        self._noted.clear()
        while len(self._promises) > self.most:
            del self._promises[next(iter(self._promises))]


def _promise(plan: Plan) -> Promise:
    """All that can be promised: the digest leaves out what PLD says."""
    return plan.digest, tuple(row.epsilon_spent_pld for row in plan.groups)
