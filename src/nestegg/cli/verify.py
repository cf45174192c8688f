"""`nestegg verify`: is a saved plan what it says, and is everybody within budget?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from nestegg.errors import VerificationError

if TYPE_CHECKING:
    from nestegg.planning import Plan, Verdict


def verify(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN.json", help="A plan that `nestegg plan --out` saved.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON and nothing else.")] = False,
) -> None:
    """Re-check a saved plan: every group's spending, recomputed from its own rows by an independent accountant."""
    from nestegg.planning import load_plan
    from nestegg.planning import verify as verified

    try:
        plan = load_plan(plan_file)
        with Console(stderr=True, quiet=as_json).status("Recomputing every group's spending …"):
            verdicts = verified(plan)
    except VerificationError as error:
        if as_json:
            print(json.dumps({"holds": False, "reason": str(error)}))
        raise
    if as_json:
        print(json.dumps(_content(plan, verdicts), allow_nan=False))
    else:
        _show(plan, verdicts)


def _content(plan: Plan, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    from nestegg.planning.plan import finite_or_none

    groups = [
        {
            "name": row.group.name,
            "clients": row.group.clients,
            "epsilon": row.group.budget.epsilon,
            "epsilon_spent": finite_or_none(epsilon),
            "judge": judge,
        }
        for row, (epsilon, judge) in zip(plan.groups, verdicts, strict=True)
    ]
    return {"holds": True, "digest": plan.digest, "delta": plan.delta, "groups": groups}


def _show(plan: Plan, verdicts: Sequence[Verdict]) -> None:
    console = Console()
    for row, (epsilon, judge) in zip(plan.groups, verdicts, strict=True):
        console.print(
            f"{row.group.name}: {row.group.clients} clients spend ε = {epsilon:.4f} of {row.group.budget.epsilon:g} "
            f"at δ = {plan.delta:g}, by {judge}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    console.print(
        f"The plan holds: nobody is over budget. Digest {plan.digest}.",
        highlight=False,
        soft_wrap=True,
    )
