"""How many parameters a plan's budgets carry, as `nestegg plan --parameters` says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from nestegg.accounting import Array
from nestegg.cli.tables import plain_table
from nestegg.planning import Plan
from nestegg.planning.curves import Pace
from nestegg.planning.reaching import noise_to_signal

LITTLE, MUCH = 0.1, 1.0  # ratios up to which noise costs a few points, and from which on it exceeds any signal


@dataclass(frozen=True)
class Carrying:
    """What models of some sizes would be told of their noise; nothing where no size is given.

    Attributes:
        sizes: numbers of trained parameters.
        pace: learning rates, and the unit of clip norms.
        kept: how much of each round's noise is not forgotten, for all plans alike.
        spread: how much larger noise is beside updates, where side statistics take a part of clip norms.
    """

    sizes: tuple[int, ...]
    pace: Pace
    kept: Array
    spread: float = 1.0

    def show(self, console: Console, plans: Mapping[str, Plan]) -> None:
        """Print the ratio of noise to signal of every size, and the sizes at which it is small and large."""
        if not self.sizes:
            return
        console.print(self._table(plans))
        console.print(
            "The length of the noise in the final model, beside the longest way that clients could take it. Up to "
            f"{LITTLE:g} noise costs a few points of accuracy; from {MUCH:g} on it is longer than any signal.",
            highlight=False,
        )

    def to_dict(self, plan: Plan) -> dict[str, Any]:
        """Return the same as JSON-ready values; without noise any number of parameters is carried, which is null."""
        if not self.sizes:
            return {}
        return {
            "noise_to_signal": {str(size): self._ratio(plan, size) for size in self.sizes},
            "parameters_at_ratio": {f"{ratio:g}": self._size(plan, ratio) for ratio in (LITTLE, MUCH)},
        }

    def _table(self, plans: Mapping[str, Plan]) -> Table:
        table = plain_table("Noise to signal", *plans, first="parameters")
        for size in self.sizes:
            table.add_row(f"{size:,}", *(f"{self._ratio(plan, size):.3f}" for plan in plans.values()))
        table.add_section()
        for ratio in (LITTLE, MUCH):
            carried = (self._size(plan, ratio) for plan in plans.values())
            table.add_row(f"carried at {ratio:g}", *("any" if one is None else _rounded(one) for one in carried))
        return table

    def _ratio(self, plan: Plan, size: int) -> float:
        return self.spread * noise_to_signal(plan, size, self.pace, self.kept)

    def _size(self, plan: Plan, ratio: float) -> int | None:
        """Return how many parameters have a ratio: noise grows with the square root of their number."""
        one = self._ratio(plan, 1)
        return int((ratio / one) ** 2) if one else None


def _rounded(size: int) -> str:
    """Return a number by its first three digits, all that such an estimate is worth."""
    return f"{int(float(f'{size:.3g}')):,}"
