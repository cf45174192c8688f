"""Gather a run's privacy statement: from what may be released of its folder, and from what its ledger gives out."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import nestegg
from nestegg.accounting import Charge, merged
from nestegg.configuration.config import own_ledger
from nestegg.configuration.description import CONFIG, RUN, Description
from nestegg.configuration.finished import CHECKPOINT
from nestegg.configuration.terms_file import TERMS
from nestegg.errors import InputError
from nestegg.ledger import Ledger
from nestegg.planning import LABELS, Exposure, GroupPlan, Plan, epsilon_by_pld, exposures, remarks, verify
from nestegg.planning.certainty import certainty, certainty_in_words
from nestegg.planning.judge import epsilons
from nestegg.planning.plan import finite_or_none
from nestegg.report.audit_page import kept_audit
from nestegg.report.statement import Statement
from nestegg.report.statement_words import ADJACENCY, NO_NOISE, NOT_COVERED, UNIT, UNKNOWN, trusted
from nestegg.runs.flower_folder import stated_folder
from nestegg.runs.folder import RunFolder
from nestegg.runs.life import Life
from nestegg.runs.statement_accounts import Accounts, accounts_of
from nestegg.runs.telling import say

# What a run has come to; a change of any of them is a change of the run. Pages are drawn from them.
FILES = (CONFIG, RUN, TERMS, "plan.json", "rounds.jsonl", CHECKPOINT, "model.safetensors",
         "summary.json", "audit.json")  # fmt: skip


def make_statement(folder: Path | str, *, ledger: str | Path | None = None) -> Statement:
    """Gather what a run promises to whom, what it has spent, and the evidence for it.

    Args:
        folder: of the run, which may still be going on.
        ledger: URL or file of its ledger; by default the one that it names, or its own. It is only read.

    Raises:
        InputError: there is no run, it has released nothing yet or a round meanwhile, its ledger and its folder
            disagree, or it is a run on Flower and its ledger cannot be read.
        VerificationError: the plan or the ledger does not hold, so that there is nothing to sign.

    >>> make_statement("runs/monday").groups[0]["in_words"]  # doctest: +SKIP
    "Somebody who is 50 % sure that a client's data is there, and sees every model, is right at most 84.1 % ..."
    """
    run = stated_folder(Path(folder))
    about, plan, life = run.about, run.plan(), Life(run)
    if not life.done:
        raise InputError(f"{folder} has released no round yet: there is nothing to state.")
    with _ledger(about, run.path, plan, ledger) as opened:
        lies_here = opened is not None and Path(opened.place).resolve() == own_ledger(run.path).resolve()
        accounts = Accounts() if opened is None else accounts_of(opened, about.run, lies_here=lies_here)
    if accounts.ledger is not None:
        _check_agreement(accounts, life, plan, run)
    files = digests(run.path)
    if files[CHECKPOINT] != life.results[-1]:
        raise InputError(f"{folder} has released a round while its statement was made: make it again.")
    first = run.plan_of(accounts.earlier_plans[0]) if accounts.earlier_plans else plan
    now, audit = spent_so_far(plan, life.done, accounts.paid, first), _audit(run.path, plan)
    private = plan.is_private
    return Statement(
        day=datetime.now(UTC).date().isoformat(),
        run=_run(about, plan, life.done, accounts),
        warnings=[*_unknown(plan, accounts), *_warnings(plan, now, life.done, audit)],
        promise={"delta": plan.delta, "accountant": LABELS[plan.accountant], "unit": UNIT, "adjacency": ADJACENCY},
        groups=[_group(exposure) for exposure in exposures(now, about.colluders)],
        plan={"digest": plan.digest, "earlier": accounts.earlier_plans, "verdicts": _verdicts(plan)},
        adaptivity=accounts.adaptivity,
        trusted=trusted(plan, about.colluders, is_deployed=about.is_deployed) if private else [],
        not_covered=list(NOT_COVERED) if private else [],
        audit=audit,
        ledger=accounts.ledger,
        other_runs=accounts.other_runs,
        changes=accounts.changes,
        withdrawals=accounts.withdrawals,
        versions={"nestegg": nestegg.__version__, "torch": torch.__version__, "python": platform.python_version()},
        files=files,
    )


def digests(folder: Path) -> dict[str, str]:
    """Return SHA-256 of the files of a run that a statement vouches for, as far as they are there."""
    found = {}
    for name in FILES:
        if (folder / name).is_file():
            try:
                with (folder / name).open("rb") as file:
                    found[name] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise InputError(f"{folder / name} cannot be read: {error.strerror}.") from None
    return found


def spent_so_far(plan: Plan, done: int, paid: Mapping[str, tuple[Charge, ...]], first: Plan | None = None) -> Plan:
    """Return the plan up to the last released round, with what the ledger has charged besides: lost rounds stay paid.

    Args:
        plan: in force.
        done: rounds that are released.
        paid: all that the ledger has charged each group for this run; nothing where there is none.
        first: the plan that the run began with, which knows what was spent before it; a later one counts lost rounds
            with that. Where it is gone, these count twice.
    """
    before = {row.group.name: row.already_spent for row in (first or plan).groups}
    rows = []
    for row in plan.groups:
        besides, name = _counted(row.already_spent), row.group.name
        if name in paid:
            released = Counter(zip(row.sampling_rate[:done], row.noise_multiplier[:done], strict=True))
            besides = _counted(before[name]) + (_counted(paid[name]) - released)
        rows.append(_row_so_far(plan, row, done, besides))
    return replace(plan, groups=tuple(rows))


def _row_so_far(plan: Plan, row: GroupPlan, done: int, besides: Counter[tuple[float, float]]) -> GroupPlan:
    rates, noise = row.sampling_rate[:done], row.noise_multiplier[:done]
    group = replace(row.group, already_spent=tuple(Charge(*pair, count) for pair, count in sorted(besides.items())))
    cut = GroupPlan(group, rates, noise, row.clip_norm[:done], row.epsilon_spent[:done])
    is_as_planned = group.already_spent == row.already_spent or not plan.is_private
    return cut if is_as_planned else replace(cut, epsilon_spent=tuple(epsilons(plan, cut).tolist()))


def _counted(charges: tuple[Charge, ...]) -> Counter[tuple[float, float]]:
    """How often which (q, σ) was charged."""
    return Counter({(q, sigma): count for q, sigma, count in merged(charges)})


@contextmanager
def _ledger(about: Description, folder: Path, plan: Plan, given: str | Path | None) -> Iterator[Ledger | None]:
    """The ledger to read, or None where there is none, or it is not where the run's description says."""
    try:
        where = about.ledger_in(folder) if given is None else given
        opened = Ledger(where, read_only=True) if plan.is_private else None
    except InputError as error:
        if given is not None:
            raise
        if about.is_deployed:
            raise InputError(
                f"{folder}: give the ledger that pays by --ledger, which the terms of a run on Flower do not name; its "
                f"folder has none to be read: {error}"
            ) from None
        say([f"The statement says that no ledger could be read: {error}"])
        opened = None
    try:
        yield opened
    finally:
        if opened is not None:
            opened.close()


def _check_agreement(accounts: Accounts, life: Life, plan: Plan, run: RunFolder) -> None:
    """Refuse a folder that is not what its ledger says was released."""
    if (accounts.done, accounts.result, accounts.plan) == (life.done, life.results[-1], plan.digest):
        return
    if run.is_in_use():
        raise InputError(f"{run.path} is at work, between two rounds: make its statement again.")
    raise InputError(
        f"{run.path} and its ledger disagree: the folder holds {life.done} rounds by the plan {plan.digest[:16]}, "
        f"the ledger says {accounts.done} by {accounts.plan[:16]}. Resuming the run brings them into agreement, "
        "unless the folder is an older copy."
    )


def _verdicts(plan: Plan) -> list[dict[str, Any]]:
    """What the judge says of every group; a plan that does not hold is an error."""
    found = zip(plan.groups, verify(plan), strict=True) if plan.is_private else ()
    return [{"group": row.group.name, "epsilon": epsilon, "judge": judge} for row, (epsilon, judge) in found]


def _run(about: Description, plan: Plan, done: int, accounts: Accounts) -> dict[str, Any]:
    return {
        "name": about.run,
        "method": plan.title,
        "dataset": about.dataset,
        "model": about.model,
        "clients": plan.clients,
        "rounds": done,
        "planned_rounds": plan.rounds,
        "began": accounts.began,
        "colluders": about.colluders,
        "note": about.note,
    }


def _group(exposure: Exposure) -> dict[str, Any]:
    row = exposure.row
    right = certainty(row, by_pld=True)
    return {
        "name": row.group.name,
        "clients": row.group.clients,
        "budget": row.group.budget.epsilon,
        "epsilon": finite_or_none(row.epsilon_spent[-1]),
        "epsilon_pld": finite_or_none(epsilon_by_pld(row)),
        "right_at_most": right,
        "in_words": certainty_in_words(right),
        "epsilon_sampled": finite_or_none(exposure.sampled),
        "epsilon_colluding": {str(k): finite_or_none(epsilon) for k, epsilon in exposure.colluding.items()},
    }


def _unknown(plan: Plan, accounts: Accounts) -> list[str]:
    return [UNKNOWN] if plan.is_private and accounts.ledger is None else []


def _warnings(plan: Plan, now: Plan, done: int, audit: dict[str, Any] | None) -> list[str]:
    said = [] if plan.is_private else [NO_NOISE]
    if done < plan.rounds:
        said.append(
            f"The run is not complete: {done} of {plan.rounds} rounds are released, and the numbers are theirs."
        )
    said += [
        f"Group {row.group.name!r} has spent more than its budget for this run: rounds that were lost stay paid."
        for row in now.groups
        if plan.is_private and row.epsilon_spent[-1] > row.group.budget.epsilon * (1.0 + 1e-6)
    ]
    if audit is not None and audit["refuted"]:
        said.append("The audit refutes the promise.")
    if audit is not None and not audit["same_plan"]:
        said.append("The audit was of another plan than the one in force.")
    return [*said, *remarks(plan)]


def _audit(folder: Path, plan: Plan) -> dict[str, Any] | None:
    if (content := kept_audit(folder)) is None:
        if (folder / "audit.json").exists():
            raise InputError(f"{folder / 'audit.json'} is damaged: what came of the audit is not known.")
        return None
    refuting = [f"{one['attack']} ({one['arm']}): {one['says']}" for one in content["findings"] if one["refutes"]]
    return {
        "refuted": bool(refuting),
        "refuted_by": refuting,
        "attacks": len(content["findings"]),
        "trials": sum(one["trials"] for one in content["evidence"]),
        "interrupted": content["interrupted"],
        "not_attacked": content["not_attacked"],
        "caveat": content["caveat"],
        "same_plan": content["plan"] == plan.digest,
        "version": content["version"],
    }
