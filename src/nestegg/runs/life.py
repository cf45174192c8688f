"""A run's life, once, for the simulator and for Flower: reserve, train, save, release, and only then tell.

life = Life(folder)              # what its checkpoint says
life.agree(payment)              # ledger and checkpoint say the same
while life.done < plan.rounds:
    life.reserve(life.done + 1)  # on disk before any client works
    ...                          # train
    life.release(tensors, line, facts)
"""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor

from nestegg.errors import InputError
from nestegg.planning import Plan
from nestegg.runs.folder import StateFolder
from nestegg.runs.payment import Payment


class Life:
    """How far a run has come, and the order in which its rounds are paid, saved and released.

    Attributes:
        folder: where its state is.
        saved: the checkpoint it begins or goes on with, if there is one.
        results: digests of the checkpoints of all rounds that are done, in their order.
    """

    payment: Payment
    _claim: str

    def __init__(self, folder: StateFolder) -> None:
        self.folder = folder
        self.saved = folder.load_checkpoint()
        self.results: list[str] = []
        if self.saved is not None:
            before = self.saved.facts.get("results")
            if not isinstance(before, list):
                raise InputError(f"{folder.path}: its checkpoint does not say which rounds were before it.")
            self.results = [*before, self.saved.digest]

    @property
    def done(self) -> int:
        """Rounds that are released."""
        return len(self.results)

    def agree(self, payment: Payment, made_by: Plan | None = None) -> list[str]:
        """Bring the ledger that pays and the checkpoint into agreement; returns what was done for it, in sentences.

        Args:
            payment: who pays from now on.
            made_by: the plan by which the checkpoint was made; by default the one in force.
        """
        self.payment = payment
        return payment.reconcile(self.results, made_by)

    def mend_lines(self) -> list[str]:
        """Write the lines of the rounds that are done, as far as they are there; returns what is lost, in sentences.

        Lines of rounds that were never released go. The last line is in the checkpoint, too, so a torn one is mended.
        """
        numbered = [(json.loads(line).get("round", 0), line) for line in self.folder.lines()]
        lines = {round_: line for round_, line in numbered if 0 < round_ <= self.done}
        if self.saved is not None and "line" in self.saved.facts:
            lines[self.done] = self.saved.facts["line"]
        self.folder.write_lines([lines[round_] for round_ in sorted(lines)])
        lost = self.done - len(lines)
        return [f"rounds.jsonl has lost {lost} of its lines: the report will have gaps."] if lost else []

    def reserve(self, round_: int) -> None:
        """Pay for a round, which must be the next one, durably, before anybody works for it."""
        self._claim = self.payment.reserve(round_)

    def release(self, tensors: dict[str, Tensor], line: str, facts: dict[str, Any]) -> None:
        """Save what the reserved round gave, enter its release in the ledger, and write its line, in this order."""
        round_ = self.done + 1
        about = {"round": round_, "line": line, "results": self.results, **facts}
        result = self.folder.save_checkpoint(tensors, about)
        self.payment.release(round_, self._claim, result)
        self.results = [*self.results, result]
        self.folder.append_line(line)
