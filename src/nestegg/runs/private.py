"""The part of a run's folder that is never released: what resuming needs, and what would tell about clients.

private/ledger.db         what the run has spent, and exactly when, unless the configuration names a ledger
private/timings.jsonl     seconds of every round, which tell about the size of its secret cohort
private/fingerprint.json  a keyed digest of clients' data and of the first model, so that a changed one is noticed
private/members.json      names of the clients of a run from Python
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nestegg.configuration.description import Description
from nestegg.errors import InputError
from nestegg.files import make_folder, write_atomically

NAME = "private"
_FINGERPRINT = f"{NAME}/fingerprint.json"


class PrivatePart:
    """The private part of a run's folder.

    Args:
        run: the run's folder.
        stamp: what every file of the run says about itself.
    """

    def __init__(self, run: Path, stamp: dict[str, str]) -> None:
        self.path, self._stamp = run / NAME, stamp

    def check_fingerprint(self, parts: Iterable[Tensor | bytes], is_new: bool) -> None:
        """Refuse to go on with anything else than a run began with.

        Args:
            parts: what it would go on with.
            is_new: whether nothing was trained yet; older versions noted only then what a run begins with.

        Raises:
            InputError: the data or the first model changed since the run began, or nothing tells whether they did.
        """
        file = self.path.parent / _FINGERPRINT
        if not file.exists():
            if not is_new:
                raise InputError(f"{file} is missing: whether the data is what the run began with cannot be told.")
            write_atomically(file, _noted(parts, self._stamp))
            return
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            key, noted = bytes.fromhex(known["key"]), str(known["digest"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} cannot be read: {error}.") from None
        if _digest(key, parts) != noted:
            raise InputError(
                f"the data or the initial model is not what the run in {self.path.parent} began with: going on would "
                "mix two runs."
            )

    def add_timing(self, round_: int, seconds: float) -> None:
        """Note how long a round took."""
        with suppress(OSError), (self.path / "timings.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"round": round_, "seconds": seconds, **self._stamp}) + "\n")

    @property
    def seconds(self) -> float:
        """How long all rounds took; torn or missing lines count as nothing."""
        total = 0.0
        with suppress(OSError, UnicodeError):
            for line in (self.path / "timings.jsonl").read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    total += float(json.loads(line)["seconds"])
        return total


def with_fingerprint(run: Description, parts: Iterable[Tensor | bytes]) -> Description:
    """Return a description that also writes what the run begins with, as a digest, into its private part."""
    return replace(run, files={**run.files, _FINGERPRINT: _noted(parts, run.stamp)})


def make_private(run: Path) -> None:
    """Make the private part, which nobody but the owner may enter."""
    make_folder("folder", run / NAME, mode=0o700)


def _noted(parts: Iterable[Tensor | bytes], stamp: dict[str, str]) -> str:
    """A digest under a new key: without this file nobody can try whether some data was in the run."""
    key = secrets.token_bytes(32)
    return json.dumps({"key": key.hex(), "digest": _digest(key, parts), **stamp}) + "\n"


def _digest(key: bytes, parts: Iterable[Tensor | bytes]) -> str:
    digest = hashlib.blake2b(key=key)
    for part in parts:
        if isinstance(part, bytes):
            digest.update(f"{len(part)} bytes\n".encode())
            digest.update(part)
        else:
            digest.update(f"{part.dtype} {tuple(part.shape)}\n".encode())
            digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
