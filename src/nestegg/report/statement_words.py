"""What a statement says in words: the unit, who is trusted, what is not covered. docs/threat-model.md says why."""

from __future__ import annotations

from nestegg.planning import Plan
from nestegg.report.statement import Statement

UNIT = "one client's whole data"
ADJACENCY = (
    "zero-out: the federation with a client's data is compared with the same federation in which that client is "
    "enrolled and contributes zero"
)
NO_NOISE = "This run adds no noise: nothing is promised to anybody."
UNKNOWN = (
    "No ledger could be read: rounds that were lost and paid for again are not counted, and nothing but its own folder "
    "says how far the run has come."
)
NOT_COVERED = (
    "Exchanging a client's data for other data: that is two steps, so its ε is about twice as large.",
    "Several clients that belong to one person: each has a budget of its own.",
    "That a client is enrolled, its group and its budget: they count as public.",
    "Side channels of a running system: how long a round takes for whoever can watch it, memory, caches.",
    "A server that does not follow the protocol, and whoever gets hold of updates before noise is added.",
    "What a model trained without the client's data would have said of it anyway.",
)

SIGNING_TITLE = "Signature"
SIGNING_TEXT = (
    "I have read this statement. The digest on this page names the file statement.json, which says the same and can be "
    "checked against the run by nestegg statement --check."
)
SIGNING_LINES = ("Name", "Role", "Place and date", "Signature")


_SIMULATED = (
    "The server and its operator are trusted: to draw by chance, to add all of the noise, to release nothing else.",
)
_DEPLOYED = (
    "The server and its operator are trusted: to draw by chance, to add the shares of noise of all who sent nothing, "
    "to release nothing else, and to show nobody what single clients sent: that bears only their own share of the "
    "noise.",
    "Clients are trusted to clip, and to add their share of the noise. One that runs nestegg's mod checks what it is "
    "asked for, and pays for it on a ledger of its own; whether it does is not known here.",
)


def trusted(plan: Plan, colluders: int, *, is_deployed: bool = False) -> list[str]:
    """Return who is trusted with what, and what else must be true for a plan's promise to hold.

    Args:
        plan: whose promise it is.
        colluders: clients against whose joint knowledge of their own noise it holds.
        is_deployed: whether clients clip and add noise themselves, on machines of their own.

    >>> from nestegg import Budget, Group, plan
    >>> trusted(plan([Group("all", 10, Budget(8.0))], 20), 0)[1]
    'Everybody is in every round, so that nothing rests on who was sampled.'
    """
    sampled = any(q < 1.0 for row in plan.groups for q in row.sampling_rate)
    secret = "Who was sampled must stay secret: whoever knows it faces the larger ε of the second table."
    share = (
        f"The promise holds against up to {colluders} clients who pool what they know of their own noise."
        if colluders
        else "Clients are trusted not to pool what they know of their own noise; the second table has the ε of one."
    )
    return [
        *(_DEPLOYED if is_deployed else _SIMULATED),
        secret if sampled else "Everybody is in every round, so that nothing rests on who was sampled.",
        share,
        "Every use of these clients' data must be charged to the same ledger, in which each client has one name.",
        "Clip norm, rates and schedule must not have been chosen by private data, unless those trials were charged.",
    ]


def notes_of(statement: Statement) -> list[str]:
    """Return what must be read first, in large letters."""
    note = statement.run["note"]
    return [f"NOT FOR RELEASE: {note}."] if note else []
