"""A run on Flower as its folder and its ledger know it: it can be left at any moment and taken up again.

terms.json              what was agreed on
roster.json             who is in it
private/ledger.db       what it has spent, and exactly when, unless another ledger pays
checkpoint.safetensors  the model after the last round
rounds.jsonl            a line a round
model.safetensors       the model at the end
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import INFO
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Metadata
from flwr.serverapp import Grid
from flwr.supercore import log
from torch import Tensor

from nestegg.configuration.config import own_ledger
from nestegg.configuration.description import CONFIG, RUN
from nestegg.configuration.terms_file import TERMS
from nestegg.errors import InputError
from nestegg.files import make_folder, write_atomically
from nestegg.flower.arrays import ArrayLayout
from nestegg.flower.enrolment import Enrolling, Enrolment, Roster
from nestegg.flower.refusals import Refusals
from nestegg.flower.terms import Order, Terms
from nestegg.ledger import Ledger, RunBooks
from nestegg.mechanism.side import Estimate
from nestegg.runs.folder import StateFolder, packed
from nestegg.runs.life import Life
from nestegg.runs.payment import new_run_name, own_rule
from nestegg.runs.private import make_private
from nestegg.training.side import BELOW


@dataclass
class OpenRound:
    """A round that is paid for and not released, and what was sent to whom: a secret of the server."""

    round: int
    sent: dict[int, tuple[Metadata, Order]]

    def clients(self) -> dict[str, int]:
        """The client of every message, by the number it has once it is sent."""
        return {metadata.message_id: client for client, (metadata, _) in self.sent.items() if metadata.message_id}


class Session:
    """A process at work on a run; `begin` makes one.

    Attributes:
        terms: what was agreed on.
        layout: of the model.
        arrays: the model after the last released round.
        learnt_norm: c of the next round, where it is learnt; else 0.
        done: rounds that are released.
        roster: who is in it, once `enrol` is done.
        enrolment: which nodes are which clients.
        refusals: who has refused an order.
        books: of the ledger that pays, once they are open.
    """

    roster: Roster
    enrolment: Enrolment
    refusals: Refusals
    books: RunBooks
    _repeated: int

    def __init__(
        self, folder: StateFolder, ledger: Ledger, terms: Terms, initial_arrays: ArrayRecord, *, rule: str | None
    ) -> None:
        self._life, self._ledger, self.terms, self._rule = Life(folder), ledger, terms, rule
        self.layout, self.arrays = ArrayLayout.of(initial_arrays), initial_arrays
        self._model = self.layout.flatten(initial_arrays)
        self.learnt_norm = terms.plan.clip_norm if terms.side.learns_clip_norm else 0.0
        self._restore()

    @classmethod
    @contextmanager
    def begin(
        cls,
        folder: Path,
        offer: Callable[[str], Terms],
        *,
        ledger: str | None,
        initial_arrays: ArrayRecord,
    ) -> Iterator[Session]:
        """Begin a run in a folder, or go on with the one that is there.

        Args:
            folder: of the run.
            offer: makes the terms of a run from its name.
            ledger: URL of the ledger that pays, by default one in the folder.
            initial_arrays: the model before the first round.
        """
        make_folder("folder", folder)
        make_private(folder)
        state = StateFolder(folder)
        with state.locked():
            terms = _agreed(folder, offer)  # before the ledger is touched: terms may be of another version
            rule = own_rule(terms.plan) if ledger is None else None
            with Ledger(ledger or own_ledger(folder)) as books:
                yield cls(state, books, terms, initial_arrays, rule=rule)

    @property
    def done(self) -> int:
        """Rounds that are released."""
        return self._life.done

    def enrol(self, grid: Grid, how: Enrolling) -> None:
        """Find out who is in the run, once."""
        path = self._life.folder.path / "roster.json"
        self.enrolment = Enrolment(self.terms, how.identity, how.roster, self._ledger.withdrawn())
        if path.exists():
            self.roster = Roster.load(path)
            self.enrolment.close(self.roster)
            self.enrolment.wait(grid, how.timeout)
        else:
            self.roster = self.enrolment.wait(grid, how.timeout)
            self.enrolment.close(self.roster)
            self.roster.save(path, self.terms.stamp)
        if self.roster.terms != self.terms.digest:
            raise InputError(f"{path} is the roster of other terms.")
        self.refusals = Refusals(len(self.roster.members))

    def open_books(self) -> None:
        """Begin the run in the ledger, if it is not there, and bring ledger and checkpoint into agreement."""
        name = self.terms.run
        if not self._ledger.has_run(name):
            members, budgets = self.roster.clients, self.roster.budgets
            self._ledger.begin(name, self.terms.plan, members, unknown=budgets, rule=self._rule, note=self.terms.note)
        self.books = self._ledger.books(name)
        said = self._life.agree(self.books)
        for sentence in [*said, *self._life.mend_lines(), *self.books.conditions()]:
            log(INFO, sentence)
        self._repeated = 0 if self.books.state.claim is None else self.done + 1

    def check_rest(self) -> None:
        """Whether everybody can afford the rounds that are left."""
        self.books.check_rest()

    def reserve(self, round_: int) -> None:
        """Pay for the next round, durably, before anybody is asked."""
        self._life.reserve(round_)

    def note_refusal(self, client: int) -> None:
        """Note that a client of the roster has refused the reserved round.

        Not in a round that another process has asked clients for: those who answered then refuse to answer again.
        """
        if self.done + 1 != self._repeated:
            self.refusals.note(client)

    def release(self, update: Tensor, estimates: dict[str, Estimate]) -> dict[str, float]:
        """Change the model by the update of the reserved round, saved and in the ledger before anybody sees it.

        Returns:
            What clients have spent, the noise of a parameter, and what side statistics say.
        """
        model, round_, side = self._model + update, self.done + 1, self.terms.side
        learnt = side.next_norm(self.learnt_norm, estimates[BELOW]) if side.learns_clip_norm else 0.0
        # Composing an account takes the longer the more rounds differ: it is done once a round.
        said = self.spent(round_) | {f"side-{name}": value for name, value in side.told(estimates).items()}
        line = json.dumps({"round": round_, **said, **self.terms.stamp})
        facts = {"terms": self.terms.digest, "layout": self.layout.digest, **self.terms.stamp}
        self._life.release({"model": model}, line, facts | ({"learnt_norm": repr(learnt)} if learnt else {}))
        self._model, self.arrays, self.learnt_norm = model, self.layout.with_vector(self.arrays, model), learnt
        return said

    def spent(self, round_: int) -> dict[str, float]:
        """What clients have spent in their lives, the tightest of every group, and the noise of a parameter."""
        accounts = self.books.accounts()
        spent = {f"epsilon-{row.group.name}": accounts[row.group.name].epsilon for row in self.terms.plan.groups}
        total = self.terms.noise_std(round_, self.learnt_norm) * self.terms.plan.clients**0.5
        return spent | {"noise-std": total / self.terms.expected(round_)}

    def finish(self) -> None:
        """Write the model, if the last round is out."""
        if self.done == self.terms.plan.rounds:
            arrays = {name: torch.from_numpy(array.numpy().copy()) for name, array in self.arrays.items()}
            facts = {"terms": self.terms.digest, **self.terms.stamp}
            write_atomically(self._life.folder.path / "model.safetensors", packed(arrays, facts))

    def _restore(self) -> None:
        saved = self._life.saved
        if saved is None:
            return
        model = saved.tensors.get("model")
        same = (saved.facts.get("terms"), saved.facts.get("layout")) == (self.terms.digest, self.layout.digest)
        if not same or model is None or model.shape != self._model.shape:
            raise InputError(f"the checkpoint in {self._life.folder.path} is of other terms or of another model.")
        self._model, self.arrays = model, self.layout.with_vector(self.arrays, model)
        self.learnt_norm = float(saved.facts.get("learnt_norm", "0"))
        log(INFO, "Going on after round %d.", self.done)


def _agreed(folder: Path, offer: Callable[[str], Terms]) -> Terms:
    """The terms in a folder, which must be those on offer; new ones where there are none."""
    path = folder / TERMS
    if not path.exists():
        if any((folder / name).is_file() for name in (CONFIG, RUN)):
            raise InputError(f"{folder} is the folder of a run that is not on Flower. Give another folder.")
        terms = offer(new_run_name(folder))
        write_atomically(path, terms.text + "\n")
        return terms
    try:
        agreed = Terms.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
    if offer(agreed.run).digest != agreed.digest:
        raise InputError(
            f"{folder} holds a run with other terms: another plan, clipping, scale or randomness. Give another folder."
        )
    return agreed
