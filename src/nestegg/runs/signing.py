"""Signatures of statements, by OpenSSH: what is signed is the file statement.json, and nothing here is cryptography.

statement.json is signed, not a page: it is plain text of fixed form, any ssh-keygen can check it without nestegg, and
pages may look different in a later version while the signature stays valid. Pages name its digest.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from nestegg.errors import InputError, VerificationError
from nestegg.files import write_atomically
from nestegg.ledger import Ledger
from nestegg.report.statement import Statement, parse_statement
from nestegg.runs.flower_folder import stated_folder
from nestegg.runs.statement import digests, make_statement

NAMESPACE = "nestegg-statement"
# Judges may differ in their last digits from version to version; nothing that a reader would notice is forgiven.
_SAME = 1e-3
_FIXED = ("run", "promise", "groups", "plan", "audit")  # parts that follow from the run alone
_GROWING = ("ledger", "other_runs", "changes", "withdrawals", "adaptivity")  # … from where the ledger ended
_WORDS = ("warnings", "trusted", "not_covered")  # … from the run, as this version puts it


class Checked(NamedTuple):
    """What a check has found: who signed, and what is to be known besides, in sentences."""

    signer: str
    remarks: list[str]


def signature_of(file: Path) -> Path:
    """Return where the signature of a file lies."""
    return file.with_name(f"{file.name}.sig")


def sign_file(file: Path, key: Path) -> Path:
    """Sign a file by a private key, or by a public one whose private half an ssh-agent holds; returns the signature.

    Raises:
        InputError: the key cannot be used, or there is no ssh-keygen.
    """
    if not key.is_file():
        raise InputError(f"--sign {key} must be a key's file; there is none.")
    done = _ssh_keygen(["sign", "-f", str(key), "-n", NAMESPACE], _content(file))
    if done.returncode != 0:
        raise InputError(f"--sign {key} cannot sign: {_said(done)}.")
    place = signature_of(file)
    write_atomically(place, done.stdout)
    return place


def signer_of(file: Path, signers: Path) -> str:
    """Return who signed a file, by the name that a list of allowed signers has for the key.

    Raises:
        InputError: it is not signed, or a file is missing.
        VerificationError: nobody on the list has signed it as it is now.
    """
    content, signature = _content(file), signature_of(file)
    if not signature.is_file():
        raise InputError(f"{file} is not signed: {signature} does not exist.")
    if not signers.is_file():
        raise InputError(f"--signers {signers} must be a file of allowed signers; there is none.")
    where = ["-f", str(signers), "-s", str(signature)]
    found = _ssh_keygen(["find-principals", *where], b"")
    names = found.stdout.decode(errors="replace").splitlines()
    if found.returncode != 0 or not names:
        raise VerificationError(f"{signature} is of no key in {signers}: {_said(found)}.")
    for name in names:
        if _ssh_keygen(["verify", *where, "-I", name, "-n", NAMESPACE], content).returncode == 0:
            return name
    raise VerificationError(
        f"{file} is not what {names[0]} signed: it was changed, or the signature is of something else."
    )


def check_statement(
    file: Path, signers: Path, *, folder: Path | None = None, ledger: str | Path | None = None
) -> Checked:
    """Check who signed a statement, and that the run still is what was signed.

    Args:
        file: statement.json.
        signers: allowed signers, in OpenSSH's format.
        folder: of the run; without it, the signature alone is checked.
        ledger: URL or file of the run's ledger, if it is not where the run says.

    Raises:
        InputError: a file is missing or is no statement, or the ledger cannot be read.
        VerificationError: the signature does not hold, or the run is not what was signed.
    """
    signer = signer_of(file, signers)
    statement = parse_statement(_content(file), str(file))
    if folder is None:
        return Checked(signer, ["Whether the run still is what was signed was not checked: its folder was not given."])
    run = stated_folder(folder)
    if run.about.run != statement.run["name"]:
        raise VerificationError(f"{file} is of the run {statement.run['name']}; {folder} holds {run.about.run}.")
    if changed := _changed_files(statement, folder):
        raise VerificationError(f"the run changed after {signer} signed: {'; '.join(changed)}.")
    said = []
    if statement.ledger is not None:
        with Ledger(run.about.ledger_in(folder) if ledger is None else ledger, read_only=True) as opened:
            position, _ = opened.verify(statement.ledger["head"])
        if more := position.entry - statement.ledger["entries"]:
            entries = "an entry" if more == 1 else f"{more} entries"
            said.append(f"The ledger has grown by {entries} since; what was signed is still part of it.")
    now = make_statement(folder, ledger=ledger)
    same_ledger = now.ledger is not None and statement.ledger is not None and not said
    same_words = statement.versions.get("nestegg") == now.versions["nestegg"]
    if not same_words:
        said.append(
            "Its warnings, who is trusted and what is not covered are in the words of another version, and were not "
            "compared."
        )
    for part in (*_FIXED, *(_GROWING if same_ledger else ()), *(_WORDS if same_words else ())):
        if not _agree(getattr(statement, part), getattr(now, part)):
            raise VerificationError(f"{file}: what it says under {part!r} does not follow from the run in {folder}.")
    return Checked(signer, said)


def _changed_files(statement: Statement, folder: Path) -> list[str]:
    now, then = digests(folder), statement.files
    said = [f"{name} is {'another file' if name in now else 'gone'}" for name in then if now.get(name) != then[name]]
    return said + [f"{name} is new" for name in now if name not in then]


def _agree(signed: Any, now: Any) -> bool:
    """Whether numbers are the same as far as anybody would notice, and all else is; words may be put otherwise."""
    if isinstance(signed, dict) and isinstance(now, dict):
        return signed.keys() == now.keys() and all(_agree(signed[key], now[key]) for key in now if key != "in_words")
    if isinstance(signed, list) and isinstance(now, list):
        return len(signed) == len(now) and all(map(_agree, signed, now))
    if isinstance(signed, float) and isinstance(now, float):
        return math.isclose(signed, now, rel_tol=_SAME, abs_tol=1e-6)
    return bool(signed == now)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None


def _ssh_keygen(arguments: list[str], given: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InputError("signatures need ssh-keygen, of OpenSSH 8.2 or later, which is not installed here.")
    return subprocess.run([program, "-Y", *arguments], input=given, capture_output=True, check=False)


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line of what ssh-keygen says."""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else f"ssh-keygen ends with {done.returncode}"
