"""The part of a run's folder that is never released: what resuming needs, and what would tell about clients.

private/ledger.db         what the run has spent, and exactly when, unless the configuration names a ledger
private/timings.jsonl     seconds of every round, which tell about the size of its secret cohort
private/fingerprint.json  keyed digests of every client's data and of the first model, so that a changed one is noticed
private/members.json      names of the clients of a run from Python
"""

from __future__ import annotations

import hashlib
import json
import secrets
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nestegg.configuration.description import Description
from nestegg.errors import InputError
from nestegg.files import make_folder, write_atomically
from nestegg.training import Federation

NAME = "private"
_FINGERPRINT = f"{NAME}/fingerprint.json"
_EACH = 16  # bytes of a client's digest


@dataclass(frozen=True, eq=False)
class Origin:
    """What a run begins with. All of it is secret.

    Attributes:
        whole: gives everything, as older folders note it.
        public: gives what belongs to no client.
        clients: gives what changes with each client's data, in the order of names, if that can be told.
        names: of the clients.
    """

    whole: Callable[[], Iterable[Tensor | bytes]]
    public: Callable[[], Iterable[Tensor | bytes]] = tuple
    clients: Callable[[], Sequence[bytes] | None] = lambda: None
    names: Sequence[str] = ()

    @classmethod
    def of(cls, federation: Federation) -> Origin:
        """Return the origin of a run whose clients have data of their own."""
        one = federation
        return cls(one.fingerprint, one.public_fingerprint, one.clients.fingerprints, one.names)

    def noted(self) -> dict[str, str]:
        """Return digests under a new key: without it nobody can try whether some data was in the run."""
        key, clients = secrets.token_bytes(32), self.clients()
        if clients is None:
            return {"key": key.hex(), "digest": _digest(key, self.whole())}
        each = self._each(key, clients)
        return {"key": key.hex(), "digest": _digest(key, self.public()), "clients": b"".join(each).hex()}

    def is_as(self, noted: Mapping[str, Any], absent: Collection[int]) -> bool:
        """Return whether this is what was noted, whatever became of the data of those who are absent.

        Raises:
            ValueError, KeyError, TypeError: what was noted is damaged.
        """
        key = bytes.fromhex(noted["key"])
        if "clients" not in noted:
            return _digest(key, self.whole()) == str(noted["digest"])
        then, clients = bytes.fromhex(noted["clients"]), self.clients()
        if clients is None or len(then) != _EACH * len(clients) or _digest(key, self.public()) != noted["digest"]:
            return False
        now = self._each(key, clients)
        return all(
            one == then[_EACH * place : _EACH * (place + 1)] for place, one in enumerate(now) if place not in absent
        )

    def _each(self, key: bytes, clients: Sequence[bytes]) -> list[bytes]:
        """A digest of each client's name and data; a name is the same however its Unicode is composed."""
        start = hashlib.blake2b(key=key, digest_size=_EACH)
        digests = []
        for name, data in zip(self.names, clients, strict=True):
            digest = start.copy()
            digest.update(unicodedata.normalize("NFC", name).encode() + b"\0" + data)
            digests.append(digest.digest())
        return digests


class PrivatePart:
    """The private part of a run's folder.

    Args:
        run: the run's folder.
        stamp: what every file of the run says about itself.
    """

    def __init__(self, run: Path, stamp: dict[str, str]) -> None:
        self.path, self._stamp = run / NAME, stamp

    def check_fingerprint(self, origin: Origin, absent: Collection[int], *, is_new: bool) -> None:
        """Refuse to go on with anything else than a run began with.

        Args:
            origin: what it would go on with.
            absent: clients who have withdrawn, by place: their data may be gone.
            is_new: whether nothing was trained yet; older versions noted only then what a run begins with.

        Raises:
            InputError: the data or the first model changed since the run began, or nothing tells whether they did.
        """
        file = self.path.parent / _FINGERPRINT
        if not file.exists():
            if not is_new:
                raise InputError(f"{file} is missing: whether the data is what the run began with cannot be told.")
            write_atomically(file, _as_text(origin, self._stamp))
            return
        try:
            is_same = origin.is_as(json.loads(file.read_text(encoding="utf-8")), absent)
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} cannot be read: {error}.") from None
        if not is_same:
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


def with_fingerprint(run: Description, origin: Origin) -> Description:
    """Return a description that also writes what the run begins with, as a digest, into its private part."""
    return replace(run, files={**run.files, _FINGERPRINT: _as_text(origin, run.stamp)})


def make_private(run: Path) -> None:
    """Make the private part, which nobody but the owner may enter."""
    make_folder("folder", run / NAME, mode=0o700)


def _as_text(origin: Origin, stamp: dict[str, str]) -> str:
    return json.dumps({**origin.noted(), **stamp}) + "\n"


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
