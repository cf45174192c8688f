"""`nestegg verify`: is a saved plan what it says, and is everybody within budget?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nestegg.planning import load_plan
from nestegg.planning import verify as verified


def verify(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan that `nestegg plan --out` saved.")],
) -> None:
    """Re-check a saved plan: every group's spending, recomputed from its own rows by an independent accountant."""
    console = Console()
    plan = load_plan(plan_file)
    with console.status("Recomputing every group's spending …"):
        verdicts = verified(plan)
    for row, (epsilon, judge) in zip(plan.groups, verdicts, strict=True):
        console.print(
            f"{row.group.name}: {row.group.clients} clients spend ε = {epsilon:.4f} of {row.group.budget.epsilon:g} "
            f"at δ = {plan.delta:g}, by {judge}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    console.print(
        f"The plan holds: nobody is over budget. Digest {plan.digest[:16]}.",
        highlight=False,
        soft_wrap=True,
    )
