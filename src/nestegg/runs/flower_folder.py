"""The folder of a run on Flower, to be read by what states what a run has promised; Flower itself is not needed."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from nestegg.configuration.description import CONFIG, RUN, Description, Members
from nestegg.configuration.terms_file import TERMS, TermsRecord, read_terms
from nestegg.errors import InputError
from nestegg.planning import Plan
from nestegg.runs.folder import Checkpoint, RunFolder


class FlowerFolder(RunFolder):
    """What the terms in a folder say, in the place of a configuration and of plan.json."""

    @cached_property
    def _agreed(self) -> tuple[TermsRecord, str]:
        return read_terms(self.path)

    @property
    def terms(self) -> TermsRecord:
        """What was agreed on."""
        return self._agreed[0]

    @cached_property
    def about(self) -> Description:
        """What the run is."""
        return Description(
            files={},
            identity=self.plan().digest,
            kin=self.terms.run,
            run=self.terms.run,
            ledger=None,  # terms do not say which one pays, for its URL may hold a password
            dataset="their own data",
            model="of a Flower app",
            seed=0,
            reproducible=self.terms.note is not None,
            colluders=self.terms.colluders,
            adaptive={},
            pace=None,
            go_on="flwr run, with the same folder",
            members=self._members,
            is_deployed=True,
        )

    def plan(self) -> Plan:
        """The plan that was agreed on, which stays in force."""
        return self.terms.parsed_plan()

    def load_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint, which must be of these terms: the ledger knows its digest, and not theirs."""
        saved = super().load_checkpoint()
        if saved is not None and saved.facts.get("terms") != self._agreed[1]:
            raise InputError(f"{self.path} disagrees with itself: its checkpoint is of other terms than its {TERMS}.")
        return saved

    def _members(self) -> Members:
        raise InputError(f"{self.path} is a run on Flower: who is in it, its roster and its ledger say.")


def stated_folder(path: Path) -> RunFolder:
    """Return a run's folder, whichever way it trains.

    >>> stated_folder(Path("runs/monday")).path.name
    'monday'
    """
    is_described = any((path / name).is_file() for name in (CONFIG, RUN))
    return FlowerFolder(path) if (path / TERMS).is_file() and not is_described else RunFolder(path)
