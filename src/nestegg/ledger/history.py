"""What the log says, entry by entry: the state of every run, every group's charges, and whether the tables agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from nestegg.accounting import Charge, merged
from nestegg.errors import InputError, VerificationError
from nestegg.ledger import schema
from nestegg.ledger.log import BEGINNING, CHARGING, Entry, Position, load_stored_plan, walk
from nestegg.planning import Plan

Releases = Counter[tuple[float, float]]  # how often which (q, σ)


@dataclass
class RunState:
    """How far a run has come.

    Attributes:
        plan: digest of the plan in force.
        plans: digests of all its plans.
        groups: its groups, by number, in the order of the plan.
        members: how many clients are in it.
        note: what is to be known of its results, as "not for release"; None where there is nothing.
        paid: the reservation of every round, by number of entry.
        done: rounds whose results count.
        claim: hash of the reservation that is open, or None; `done + 1` is its round.
        results: digest of the checkpoint of every round that is done.
        lost: results that were released once, and then lost.
    """

    number: int
    name: str
    plan: str
    at: str
    plans: list[str]
    groups: dict[int, str]
    members: int
    note: str | None = None
    paid: dict[int, int] = field(default_factory=dict)
    done: int = 0
    claim: str | None = None
    results: dict[int, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    @property
    def reserved(self) -> int:
        """Rounds that are paid: those that are done, and one that is reserved."""
        return self.done + (self.claim is not None)


@dataclass
class RoundCharge:
    """One reservation: a round of a run, paid by all its groups.

    Attributes:
        state: reserved, released, or lost, where a released result had to be paid for again.
    """

    at: str
    run: str
    round: int
    state: str = "reserved"


@dataclass
class History:
    """The log, replayed.

    Attributes:
        place: the ledger, for messages.
        position: the last entry that was read.
        runs: by number.
        rounds: the reservations, by number of entry.
        charges: of every group: how often which (q, σ).
        left: the same as it stood when a client withdrew, of the groups it is in, by number of that entry.
        budgets: how many rows of budgets there are.
    """

    place: str
    position: Position = BEGINNING
    runs: dict[int, RunState] = field(default_factory=dict)
    rounds: dict[int, RoundCharge] = field(default_factory=dict)
    charges: dict[int, Releases] = field(default_factory=dict)
    left: dict[int, dict[int, Releases]] = field(default_factory=dict)
    budgets: int = 0

    @classmethod
    def of(cls, connection: Connection, place: str) -> History:
        """The whole log of a ledger."""
        history = cls(place)
        for _ in history.follow(connection):
            pass
        return history

    def follow(self, connection: Connection) -> Iterator[Entry]:
        """Read what others, or we ourselves, have added since."""
        for entry in walk(connection, self.position, self.place):
            self._apply(entry)
            self.position = Position(entry.number, entry.hash)
            yield entry

    def run(self, name: str) -> RunState:
        """The run of a name.

        Raises:
            InputError: it is not known.
        """
        found = next((one for one in self.runs.values() if one.name == name), None)
        if found is None:
            raise InputError(f"{self.place} knows no run {name!r}.")
        return found

    def charge_lines(self, connection: Connection) -> Iterator[dict[str, Any]]:
        """A line for every charge, in the order of the log."""
        run_of = {group: run for run in self.runs.values() for group in run.groups}
        query = select(schema.charges).order_by(*schema.charges.primary_key)
        for entry, group, q, sigma in connection.execute(query):
            paid, run = self.rounds[entry], run_of[group]
            yield {
                "entry": entry,
                "day": paid.at[:10],
                "run": paid.run,
                "round": paid.round,
                "group": run.groups[group],
                "sampling_rate": q,
                "noise_multiplier": sigma,
                "state": paid.state,
                "note": run.note or "",
            }

    def charges_of(self, groups: tuple[int, ...], left: int | None = None) -> tuple[Charge, ...]:
        """All that a member of these groups has spent, or had when it withdrew by an entry; equal releases counted."""
        found = self.charges if left is None else self.left[left]
        return merged(Charge(*pair, n) for group in groups for pair, n in found.get(group, Counter()).items())

    def _apply(self, entry: Entry) -> None:
        if entry.kind == "run":
            (name,), rows = entry.rows[0], entry.rows[1:]
            groups = dict(rows[: entry.detail["groups"]])
            digest = entry.detail["plan"]
            members, note = len(rows) - len(groups), entry.detail.get("note")
            self.runs[entry.number] = RunState(entry.number, name, digest, entry.at, [digest], groups, members, note)
            return
        if entry.kind == "withdraw":
            taken = [group for (group,) in entry.rows[1:]]
            self.left[entry.number] = {group: Counter(self.charges.get(group, Counter())) for group in taken}
            return
        if entry.run is None:
            self.budgets += len(entry.rows)
            return
        run, round_ = self.runs[entry.run], entry.round or 0
        if entry.kind == "replan":
            run.plan = entry.detail["plan"]
            run.plans.append(run.plan)
        elif entry.kind in CHARGING:
            run.claim = entry.hash
            run.paid[round_] = entry.number
            self.rounds[entry.number] = RoundCharge(entry.at, run.name, round_)
            for group, q, sigma in entry.rows:
                self.charges.setdefault(group, Counter())[q, sigma] += 1
                for frozen in self.left.values() if entry.kind == "recover" else ():
                    if group in frozen:  # it may have been in that round, before it withdrew
                        frozen[group][q, sigma] += 1
        elif entry.kind == "retry":
            run.claim = entry.hash
        elif entry.kind in ("release", "rewind"):
            run.done, run.claim = round_, None
            if entry.kind == "release":
                run.results[round_] = entry.detail["result"]
                self.rounds[run.paid[round_]].state = "released"
            else:
                for later in [r for r in run.paid if r > round_]:
                    run.lost |= {run.results.pop(later)} if later in run.results else set()
                    self.rounds[run.paid.pop(later)].state = "lost"


def checked_history(connection: Connection, place: str, noted: str | None) -> History:
    """The whole log, checked against the plans it names and the tables beside it.

    Raises:
        VerificationError: they disagree, or no entry has the hash that was noted.
    """
    history, seen = History(place), noted is None
    plans: dict[int, Plan] = {}
    for entry in history.follow(connection):
        seen = seen or entry.hash == noted
        if entry.kind in ("run", "replan"):
            plans[entry.run or 0] = load_stored_plan(connection, entry.detail["plan"], place)
        elif entry.kind in CHARGING:
            _check_charges(entry, plans[entry.run or 0], place)
    if not seen:
        raise VerificationError(f"{place}: no entry has the noted hash {noted}: the log was cut or rewritten.")
    _check_counts(connection, history)
    return history


def _check_counts(connection: Connection, history: History) -> None:
    """No table may hold more than the log tells of."""
    found = dict(connection.execute(select(schema.spellings.c.name, schema.spellings.c.client)).all())
    if found != schema.other_spellings(connection):
        raise VerificationError(f"{history.place}: the table 'spellings' is not what clients' names say.")
    groups_ = sum(len(run.groups) for run in history.runs.values())
    members_ = sum(run.members for run in history.runs.values())
    known = connection.execute(select(func.count(schema.budgets.c.client.distinct()))).scalar_one()
    counts = {
        schema.runs: len(history.runs),
        schema.groups: groups_,
        schema.members: members_,
        schema.clients: known,
        schema.budgets: history.budgets,
    }
    counts[schema.charges] = sum(charged.total() for charged in history.charges.values())
    counts[schema.withdrawals], counts[schema.entries] = len(history.left), history.position.entry
    for table, count in counts.items():
        if connection.execute(select(func.count()).select_from(table)).scalar_one() != count:
            raise VerificationError(f"{history.place}: the table {table.name!r} has rows that no entry tells of.")


def _check_charges(entry: Entry, plan: Plan, place: str) -> None:
    """A reservation must be what its run's plan says."""
    round_ = (entry.round or 0) - 1
    planned = [(row.sampling_rate[round_], row.noise_multiplier[round_]) for row in plan.groups]
    if [pair for _, *pair in entry.rows] != [list(pair) for pair in planned]:
        raise VerificationError(f"{place}: entry {entry.number} does not charge what the plan says.")
