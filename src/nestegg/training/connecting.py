"""How a Ray cluster is reached: one of this machine's own, one that runs here already, or one at an address."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import socket
import tempfile
from ipaddress import ip_address

from nestegg.errors import InputError
from nestegg.extras import needs
from nestegg.training.performance import cores

_REACH = 5.0  # seconds in which a cluster must answer
# Nothing is reported to Ray's makers, and nobody is told of settings that are none of ours.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_NUM_REDIS_GET_RETRIES": "1"}
# By this Ray takes 127.0.0.1 for what it is; otherwise it puts this machine's outward address in its place.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # how HTTP/2 begins (RFC 9113)
_own: set[str] = set()  # clusters that this process has started
_SETTINGS = 4  # the kind of frame with which it answers


def connect(address: str) -> str:
    """Connect this process to a cluster, once; return the address of its head.

    Args:
        address: local starts one on this machine, which ends with the process; auto is the one that runs here already;
            or host:port of its head.

    Raises:
        InputError: there is none, it does not answer, or its Ray is another version.
    """
    needs("a cluster", "cluster")
    _set_up(_QUIET)
    if address == "local" and not _own:
        # Whatever else is set: it is nobody else's.
        os.environ.update({**_LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    elif address != "auto":
        _check(address)
    import ray  # after that: it reads some settings while it is imported

    if ray.is_initialized():
        return _same(address)
    own = {"num_cpus": cores(), "include_dashboard": False, "_temp_dir": _folder()} if address == "local" else {}
    try:
        ray.init(address, logging_level="ERROR", log_to_driver=False, **own)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        ray.shutdown()
        raise InputError(f"cluster = {address!r} cannot be used: {_spoken(error)}.") from None
    found: str = ray.get_runtime_context().gcs_address
    if address == "local" and not ip_address(found.rpartition(":")[0]).is_loopback:
        ray.shutdown()
        raise InputError("cluster = 'local' would listen to other machines: here Ray was imported before nestegg.")
    if address == "local":
        _own.add(found)
    return found


def _folder() -> str:
    """A folder for logs and sockets of a cluster of one's own, which nobody else may read, and which ends with it."""
    import ray

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: names of sockets have at most 107 characters

    def end() -> None:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return folder


def obstacle(address: str) -> str | None:
    """Return why nobody answers at host:port as gRPC does, or None."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _REACH) as connection:
            connection.sendall(_HELLO)
            answer = connection.recv(9)
    except (OSError, OverflowError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error).rstrip(".") or "no connection"
    if answer[3:4] == bytes([_SETTINGS]):
        return None
    return "something else than Ray answers there, or Ray by TLS, which is not supported"


def first_line(error: BaseException) -> str:
    """Return the line of an error from Ray that says what happened: the last of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    found = named[-1] if named else (lines or [type(error).__name__])[0]
    return found.rstrip(".")


def _check(address: str) -> None:
    """Refuse an address that is none, or where no cluster answers; prepare for one that only this machine reaches."""
    if not re.fullmatch(r"[\w.\[\]:-]+:\d{1,5}", address):
        raise InputError(f"cluster = {address!r} must be 'local', 'auto', or host:port of a Ray cluster's head.")
    if (why := obstacle(address)) is not None:
        raise InputError(f"cluster = {address!r} does not answer, tried for up to {_REACH:g} s: {why}.")
    host, _, port = address.rpartition(":")
    if host in ("127.0.0.1", "localhost") and obstacle(f"{_outward()}:{port}") is not None:
        _set_up(_LOOPBACK)


def _outward() -> str:
    """The address by which this machine would reach others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # of those that are nobody's (RFC 5737)
        except OSError:  # there is no network at all
            return "127.0.0.1"
        return str(asking.getsockname()[0])


def _set_up(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def _same(address: str) -> str:
    """The address of the cluster that this process has already, which must be the one that is asked for."""
    import ray

    there: str = ray.get_runtime_context().gcs_address
    if address not in ("auto", there) and not (address == "local" and there in _own):
        raise InputError(f"cluster = {address!r} cannot be used: this process is connected to {there} already.")
    return there


def _spoken(error: BaseException) -> str:
    """What Ray says, in one line: which versions differ, or else the first sentence."""
    text = " ".join(str(error).split())
    versions = re.findall(r"Ray: (\S+) Python: (\S+)", text)
    if "Version mismatch" in text and len(versions) == 2:
        (theirs, their_python), (ours, our_python) = versions
        return f"it has Ray {theirs} on Python {their_python}, and this machine has Ray {ours} on Python {our_python}"
    return (re.split(r"(?<=[a-z])\. ", text)[0] or type(error).__name__).rstrip(".")
