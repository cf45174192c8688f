"""A run's folder: it appears whole, is valid at every moment, and belongs to one process at a time.

config.toml         the configuration, with every default written out; run.json for a run from Python
plan.json           the plan in force, with its digest; plans before it are in plans/
rounds.jsonl        a line a round
checkpoint.safetensors  the state after the last round
summary.json, model.safetensors, report.html     at the end; charts as *.png and *.svg if asked for
statement.json, statement.html, statement.pdf    if asked for; statement.json.sig is a signature of the first
private/            what must not be released; see `private`

All but private/ follows from released models, plans and public data alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from nestegg.configuration.description import Description, read_description
from nestegg.configuration.finished import CHECKPOINT, REPORT, SUMMARY, checkpoint_facts
from nestegg.errors import InputError
from nestegg.files import note_made, sync_folder, write_atomically
from nestegg.planning import Plan, load_plan, save_plan
from nestegg.runs.private import NAME as PRIVATE
from nestegg.runs.private import PrivatePart, make_private

PLAN = "plan.json"  # in force
_PATIENCE = 3.0  # seconds: workers of a process that was killed hold its lock until they notice


class Checkpoint(NamedTuple):
    """A state that was saved, the facts about it, and the digest of its file."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    digest: str


class StateFolder:
    """Where a run's state lives: a checkpoint, a line a round, and a lock. It belongs to one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes away."""
        try:
            with FileLock(self.path / ".lock", timeout=_PATIENCE):
                for torn in self.path.glob(".*.[0-9]*"):  # a result that was never released shall not lie about
                    if torn.is_file():
                        torn.unlink()
                yield
        except Timeout:
            raise InputError(f"{self.path} is in use: another process is at work on this run.") from None
        except PermissionError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}.") from None

    def is_in_use(self) -> bool:
        """Return whether a process is at work on the run. It only looks: nobody has to wait longer for it."""
        import fcntl

        try:
            with (self.path / ".lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go of when the file is closed
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError as error:
            raise InputError(f"{self.path / '.lock'} cannot be read: {error.strerror}.") from None
        return False

    def save_checkpoint(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> str:
        """Write a checkpoint, durably; returns its digest."""
        content = packed(tensors, facts)
        write_atomically(self._checkpoint, content)
        return hashlib.sha256(content).hexdigest()

    def load_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint, if there is one."""
        if not self._checkpoint.exists():
            return None
        try:
            content = self._checkpoint.read_bytes()
            return Checkpoint(load(content), checkpoint_facts(content), hashlib.sha256(content).hexdigest())
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(f"{self._checkpoint} cannot be read: {error}.") from None

    def lines(self) -> list[str]:
        """The lines of rounds.jsonl, up to the first that is not whole."""
        try:
            text = self._rounds.read_text(encoding="utf-8") if self._rounds.exists() else ""
        except (OSError, ValueError) as error:
            raise InputError(f"{self._rounds} cannot be read: {error}.") from None
        lines = []
        for line in text.splitlines():
            try:
                json.loads(line)
            except ValueError:
                break
            lines.append(line)
        return lines

    def write_lines(self, lines: list[str]) -> None:
        """Replace rounds.jsonl."""
        write_atomically(self._rounds, "".join(line + "\n" for line in lines))

    def append_line(self, line: str) -> None:
        """Add a round to rounds.jsonl, durably."""
        try:
            with self._rounds.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{self._rounds} cannot be written: {error.strerror}.") from None

    @property
    def _checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def _rounds(self) -> Path:
        return self.path / "rounds.jsonl"


class RunFolder(StateFolder):
    """The files of a run."""

    def create(self, run: Description, plan: Plan) -> None:
        """Make the folder, with the run's description and plan in it, or nothing."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            place = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            place.mkdir()
        except OSError as error:
            raise InputError(f"{self.path} cannot be made: {error.strerror}.") from None
        try:
            make_private(place)
            run.write(place)
            save_plan(plan, place / PLAN, note=run.note)
            os.rename(place, self.path)
            note_made(self.path)
            sync_folder(self.path.parent)
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, OSError):
                raise InputError(f"{self.path} cannot be made: {error.strerror}.") from None
            raise

    @cached_property
    def about(self) -> Description:
        """What the run is."""
        if self.path.is_file():
            raise InputError(f"{self.path} is a file; give the folder of a run.")
        described = read_description(self.path)
        if not (self.path / PLAN).is_file():
            below = sorted(one.parent for one in self.path.glob(f"*/{PLAN}"))
            meant = f" Did you mean {str(below[0])!r}?" if below else ""
            raise InputError(f"{self.path} is not a run: it has no {PLAN}.{meant}")
        return described

    def summary(self) -> dict[str, Any] | None:
        """What a run that is complete, and all of whose files are written, has come to."""
        if not (self.path / REPORT).is_file():
            return None
        content = self.last_summary()
        return None if content is None or "stopped" in content else content

    def last_summary(self) -> dict[str, Any] | None:
        """What a run had come to when it last ended by itself, complete or stopped."""
        path = self.path / SUMMARY
        if not path.is_file():
            return None
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} cannot be read: {error}.") from None

    def hide_times(self) -> None:
        """Give all files that may be released the time of midnight: how long training took is nobody's business."""
        for path in self.path.rglob("*"):
            if path.is_file() and PRIVATE not in path.relative_to(self.path).parts:
                at_midnight(path)

    def private(self) -> PrivatePart:
        """The part that must not be released."""
        make_private(self.path)
        return PrivatePart(self.path, self.about.stamp)

    def plan(self) -> Plan:
        """The plan in force."""
        return load_plan(self.path / PLAN)

    def plan_of(self, digest: str) -> Plan | None:
        """The plan of a digest, if it is or was in force here."""
        earlier = self.path / "plans" / f"{digest}.json"
        found = [self.plan(), *([load_plan(earlier)] if earlier.is_file() else [])]
        return next((plan for plan in found if plan.digest == digest), None)

    def put_in_force(self, plan: Plan) -> None:
        """Another plan for what is left; the one before is kept, for what was made by it."""
        before = self.plan()
        try:
            (self.path / "plans").mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}.") from None
        save_plan(before, self.path / "plans" / f"{before.digest}.json", note=self.about.note)
        save_plan(plan, self.path / PLAN, note=self.about.note)


def at_midnight(path: Path) -> None:
    """Give a file the time at which this day began."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    os.utime(path, (midnight, midnight))


def packed(tensors: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    """Tensors and facts as a safetensors file.

    Facts are one entry of its metadata: the library writes several in no fixed order, and equal runs shall be equal
    files.
    """
    content: bytes = save(tensors, {"nestegg": json.dumps(facts)})
    return content
