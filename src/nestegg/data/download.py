"""Downloads from the datasets' own public homes: resumed where they broke off, checked before they count."""

from __future__ import annotations

import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from nestegg.checks import one_of
from nestegg.data.catalogue import CIFAR_BATCHES, CIFAR_FOLDER, FILES, RemoteFile, how_to_get, needed
from nestegg.errors import InputError

OnProgress = Callable[[str, int, int | None], None]  # name, bytes so far, bytes in all
_CHUNK = 1 << 16
_TIMEOUT = 60.0


def download(name: str, folder: Path, on_progress: OnProgress = lambda *_: None) -> None:
    """Bring a dataset into a folder; what is there already, and right, is not fetched again."""
    one_of("dataset", name, FILES)
    if name == "cifar10" and all((folder / path).is_file() for path in needed(name)):
        return
    for file in FILES[name]:
        target = folder / file.path
        if not (target.is_file() and _sha256(target) == file.sha256):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                fetch(file, target, on_progress)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
                raise InputError(f"{file.url} cannot be fetched: {reason}. {how_to_get(name)}") from None
    if name == "cifar10":
        _unpack(folder / FILES[name][0].path, folder)


def fetch(file: RemoteFile, target: Path, on_progress: OnProgress) -> None:
    """One file: what an earlier try left behind is continued, and only a file with the right sum gets its name."""
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing left to send: the part is whole, or wrong
            raise
    else:
        with response:
            continued = response.status == 206
            have = have if continued else 0
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            with part.open("ab" if continued else "wb") as sink:
                while chunk := response.read(_CHUNK):
                    sink.write(chunk)
                    have += len(chunk)
                    on_progress(target.name, have, total)
            if total is not None and have < total:
                raise OSError(f"the connection broke off after {have} of {total} bytes; run it again to go on")
    found = _sha256(part)
    if found != file.sha256:
        part.unlink()
        raise InputError(f"{file.url} has the SHA-256 {found}; it must be {file.sha256}. Nothing was kept.")
    os.replace(part, target)


def _unpack(archive: Path, folder: Path) -> None:
    """The batches of the CIFAR-10 archive, and nothing else of it."""
    with tarfile.open(archive) as tar:
        for batch in CIFAR_BATCHES:
            tar.extract(f"{CIFAR_FOLDER}/{batch}", folder, filter="data")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
