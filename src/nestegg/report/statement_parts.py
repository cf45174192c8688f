"""What a statement shows, in which order: headings, sentences, lists and tables, for whatever draws them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nestegg.planning import epsilon_text
from nestegg.planning.certainty import percent_right
from nestegg.report.statement import Statement

_SHOWN = 12  # changes of budgets and other runs on a page; statement.json has all


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of text under heads."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Named:
    """Things that are copied and compared, digests above all, each with what it is."""

    pairs: Sequence[tuple[str, str]]


Block = str | Items | Table | Named


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: Sequence[Block]


def title_of(statement: Statement) -> str:
    """Return the heading of the whole."""
    return f"Privacy statement for {statement.run['name']}"


def lead_of(statement: Statement) -> str:
    """Return what the run is, in a sentence or two."""
    run = statement.run
    began = f" It began on {run['began']}." if run["began"] else ""
    return (
        f"{run['clients']} clients trained the model {run['model']} on {run['dataset']} by the method {run['method']}; "
        f"{run['rounds']} of {run['planned_rounds']} rounds are released.{began} This statement was made on "
        f"{statement.day}."
    )


def sections_of(statement: Statement) -> list[Section]:
    """Return everything below the lead, but for the place to sign."""
    return [
        Section("What is promised", list(_promise(statement))),
        Section("Over all runs", list(_life(statement))),
        Section("Who is trusted", [Items(statement.trusted)] if statement.trusted else ["Nothing is promised."]),
        Section("What is not covered", [Items(statement.not_covered)] if statement.not_covered else ["Everything."]),
        Section("Evidence", list(_evidence(statement))),
    ]


def _promise(one: Statement) -> Iterator[Block]:
    if not one.groups:
        yield "No noise was added: nothing is promised, and no budget was charged."
        return
    promise, delta = one.promise, f"{one.promise['delta']:g}"
    yield (
        f"Whoever sees all that the run releases learns about a client's data no more than (ε, δ)-differential privacy "
        f"allows, with δ = {delta} and the ε of the client's group. The unit is {promise['unit']}. The adjacency is "
        f"{promise['adjacency']}."
    )
    heads: tuple[str, ...] = (
        "group",
        "clients",
        "budget ε",
        f"ε spent, by {promise['accountant']}",
        "ε spent, by PLD",
        "right at most, by this run",
    )
    yield Table(heads, [
        (group["name"], str(group["clients"]), f"{group['budget']:g}", _epsilon(group["epsilon"]),
         _epsilon(group["epsilon_pld"]), percent_right(group["right_at_most"]))
        for group in one.groups
    ])  # fmt: skip
    yield (
        "Both numbers are bounds on the same spending. The budget is kept by the first; the smaller one is nearer to "
        "the truth. In words, about this run alone; what an attacker learns from several runs together is more:"
    )
    yield Items([f"{group['name']}: {group['in_words']}" for group in one.groups])
    if one.plan["earlier"]:
        yield "The run was planned anew on its way. What is said by PLD holds only if that depended on no result."
    known = list(one.groups[0]["epsilon_colluding"])
    heads = ("group", "knows that the client was sampled", *(_knowing(k) for k in known))
    yield "The promise is weaker against an attacker who knows more than it assumes. ε is this against one who …"
    yield Table(heads, [
        (group["name"], _epsilon(group["epsilon_sampled"]), *(_epsilon(group["epsilon_colluding"][k]) for k in known))
        for group in one.groups
    ])  # fmt: skip


def _life(one: Statement) -> Iterator[Block]:
    if one.ledger is None:
        yield "No ledger could be read. Whether the same clients' data was used in other runs is not known here."
        return
    if one.ledger["own"]:
        yield (
            "The run keeps a ledger of its own, which knows of no other run. Whether the same clients' data was used "
            "elsewhere, for tuning above all, is not known here, and would cost more."
        )
    yield Items(one.adaptivity)
    if not one.ledger["own"]:
        heads = (
            "group",
            "lifetime budget ε",
            "δ",
            "other runs",
            "this run",
            "together",
            "together, by PLD",
            "left",
            "right at most, by all",
        )
        names = ("epsilon_earlier", "epsilon_here", "epsilon_spent", "epsilon_pld", "epsilon_left")
        yield Table(heads, [
            (account["group"], f"{account['epsilon']:g}", f"{account['delta']:g}",
             *(_epsilon(account[name]) for name in names), percent_right(account["right_at_most"]))
            for account in one.ledger["accounts"]
        ])  # fmt: skip
        yield (
            "Of each group's member that has the least left. ε of an account is by the account's own rule, and so "
            "may differ from the same run's ε above. ε of several runs do not add up: together they are less. What is "
            "said by PLD, and how often an attacker is right, holds only if no plan depended on a result."
        )
    yield from _others(one)
    yield from _changes(one)


def _others(one: Statement) -> Iterator[Block]:
    if not one.other_runs:
        if one.ledger is not None and not one.ledger["own"]:
            yield "The ledger knows of no other run of these clients."
        return
    yield "Other runs of the same clients, each with the most that it has cost one of them by itself:"
    heads = ("run", "began", "shared clients", "rounds", "ε, by the account's rule", "ε, by PLD", "for release")
    yield Table(heads, [
        (run["run"], run["began"], str(run["shared_clients"]), str(run["rounds"]), _epsilon(run["epsilon"]),
         _epsilon(run["epsilon_pld"]), _for_release(run))
        for run in one.other_runs[-_SHOWN:]
    ])  # fmt: skip
    yield from _rest(len(one.other_runs), "runs")


def _for_release(run: dict[str, Any]) -> str:
    """Whether there is something that may be released."""
    if not run["rounds"]:
        return "nothing released"
    return "yes" if run["for_release"] else "no"


def _changes(one: Statement) -> Iterator[Block]:
    if one.changes:
        yield "Budgets of these clients that took another's place:"
        heads = ("day", "clients", "ε", "δ", "by", "reason")
        yield Table(heads, [
            (change["day"], str(change["clients"]), _arrow(change, "epsilon"), _arrow(change, "delta"),
             change["author"], change["reason"])
            for change in one.changes[-_SHOWN:]
        ])  # fmt: skip
        yield from _rest(len(one.changes), "changes")
    else:
        yield "No budget of these clients was changed."
    gone = [f"{day['clients']} on {day['day']}" for day in one.withdrawals]
    yield f"Clients that have withdrawn: {', '.join(gone)}." if gone else "No client has withdrawn."


def _evidence(one: Statement) -> Iterator[Block]:
    judges = dict.fromkeys(verdict["judge"] for verdict in one.plan["verdicts"])
    if judges:
        yield (
            f"The judge: every group's spending was recomputed from the plan's own rows, by {' and '.join(judges)}; "
            "nobody is over budget."
        )
    yield f"The audit: {_audit(one.audit)}"
    if one.ledger is not None:
        yield (
            f"The ledger was verified when this was made: its chain of {one.ledger['entries']} entries is whole, and "
            "nobody in it is over budget."
        )
    earlier = [("earlier plan", digest) for digest in one.plan["earlier"]]
    head = [("ledger head", one.ledger["head"])] if one.ledger is not None else []
    files = [(name, digest) for name, digest in one.files.items()]
    yield Named([("plan", one.plan["digest"]), *earlier, *head, *files])
    versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
    yield f"Made by {versions}. Digests are SHA-256."


def _audit(found: dict[str, Any] | None) -> str:
    if found is None:
        return "no audit was made."
    result = f"it refutes the promise, by {'; '.join(found['refuted_by'])}" if found["refuted"] else "none succeeded"
    cut = " It was interrupted." if found["interrupted"] else ""
    missing = len(found["not_attacked"])
    left_out = f" Not attacked: {missing} parts, which audit.html lists." if missing else ""
    return f"{found['attacks']} attacks by nestegg {found['version']}, {result}.{cut}{left_out} {found['caveat']}"


def _rest(count: int, what: str) -> Iterator[Block]:
    if count > _SHOWN:
        yield f"The latest {_SHOWN} of {count} {what}; statement.json has all."


def _knowing(colluders: str) -> str:
    return f"knows the noise of {colluders} other client{'' if colluders == '1' else 's'}"


def _arrow(change: dict[str, Any], name: str) -> str:
    before, now = change[f"{name}_before"], change[name]
    return f"{now:g}" if before == now else f"{before:g} → {now:g}"


def _epsilon(value: float | None) -> str:
    return epsilon_text(float("inf") if value is None else value)
