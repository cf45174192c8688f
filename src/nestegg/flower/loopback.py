"""A whole Flower federation on this machine: a SuperLink and SuperNodes on loopback, over TLS, with keys of their own.

For trying things out and for tests. Every process is a real one, started as an operator would.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import TracebackType
from typing import Self

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nestegg.errors import InputError
from nestegg.files import make_folder

_HOST = "127.0.0.1"
_STARTING = 60.0  # seconds that a process may take to listen
_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # else the SuperLink installs what apps depend on
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds until a process is started for a message; else up to 1
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}
_NAME = "loopback"


class Loopback:
    """A federation in a folder; leaving the context ends all its processes.

    Args:
        folder: for certificates, keys, logs and Flower's own state.
        nodes: the node-config of every SuperNode.
        started: how many of them to start; by default all.
    """

    def __init__(
        self, folder: Path, nodes: Sequence[Mapping[str, str | int | float]], started: int | None = None
    ) -> None:
        self.folder, self._nodes = folder.absolute(), nodes
        self._started = len(nodes) if started is None else started
        make_folder("folder", self.folder)
        self.port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = os.environ | _ENVIRONMENT | {"FLWR_HOME": str(self.folder / "flwr")}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

    def __enter__(self) -> Self:
        try:
            make_certificates(self.folder)
            self._write_config()
            self.start_superlink()
            for number in range(self._started):
                self.register(number)
                self.start_node(number)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_superlink(self) -> None:
        """Start the SuperLink, on the state it had, if it had one."""
        self._start(
            "superlink",
            "flower-superlink",
            *self._tls(),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *("--host", _HOST, "--port", str(self.port), "--database", str(self.folder / "state.db")),
        )
        wait_for_port(self.port, self._processes["superlink"])

    def register(self, number: int) -> None:
        """Make a new key for a SuperNode, and make it known to the SuperLink."""
        make_node_key(self.folder / f"node{number}")
        self.flwr("supernode", "register", str(self.folder / f"node{number}.pub"), _NAME)

    def start_node(self, number: int, key: str | None = None) -> None:
        """Start a SuperNode, under its own key or another."""
        config = " ".join(f"{name}={_toml(value)}" for name, value in self._nodes[number].items())
        self._start(
            f"node{number}",
            "flower-supernode",
            *("--root-certificates", str(self.folder / "ca.crt"), *self._tls()),
            *("--superlink", f"{_HOST}:{self.port}", "--port", str(free_port())),
            *("--auth-supernode-private-key", str(self.folder / (key or f"node{number}"))),
            *("--node-config", config),
        )

    def kill(self, name: str) -> None:
        """Kill a process and all its children at once, as a power cut would: superlink, or node0 and so on."""
        process = self._processes.pop(name)
        os.killpg(process.pid, SIGKILL)
        process.wait()

    def run(self, app: Path, config: Mapping[str, str | int | float], log: Path | None = None) -> subprocess.Popen[str]:
        """`flwr run APP`, streaming its log to a file or to this process's output."""
        given = " ".join(f"{name}={_toml(value)}" for name, value in config.items())
        command = [shutil.which("flwr", path=self.environment["PATH"]) or "flwr", "run", str(app), _NAME, "--stream"]
        out = None if log is None else log.open("w")
        try:
            return subprocess.Popen(
                [*command, "--run-config", given], env=self.environment, stdout=out, stderr=out, text=True
            )
        finally:
            if out is not None:
                out.close()

    def flwr(self, *arguments: str) -> str:
        """A command of Flower's own program; returns what it says."""
        result = subprocess.run(
            [shutil.which("flwr", path=self.environment["PATH"]) or "flwr", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise InputError(f"flwr {arguments[0]} failed: {(result.stderr or result.stdout).strip()}")
        return result.stdout

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        """End all processes, nodes first, kindly and then for good."""
        for name, process in reversed(self._processes.items()):
            if process.poll() is None:
                os.killpg(process.pid, SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.folder.joinpath(f"{name}.killed").touch()
            try:
                os.killpg(process.pid, SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()
        self._processes.clear()

    def _start(self, name: str, program: str, *arguments: str) -> None:
        path = shutil.which(program, path=self.environment["PATH"])
        if path is None:
            raise InputError(f"{program} is not installed: pip install 'nestegg-fl[flower]'.")
        with (self.folder / f"{name}.log").open("a") as log:
            self._processes[name] = subprocess.Popen(
                [path, *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _tls(self) -> list[str]:
        files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.pem", "--ssl-keyfile": "server.key"}
        return [part for option, file in files.items() for part in (option, str(self.folder / file))]

    def _write_config(self) -> None:
        home = self.folder / "flwr"
        home.mkdir(exist_ok=True)
        connection = {"address": f"{_HOST}:{self.port}", "root-certificates": str(self.folder / "ca.crt")}
        (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": _NAME, _NAME: connection}}))


def make_certificates(folder: Path) -> None:
    """An authority, ca.crt, and a certificate for this machine, server.pem with server.key; both for one day."""
    now = datetime.now(UTC)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("nestegg CA", _HOST))

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey, is_ca: bool) -> x509.Certificate:
        builder = x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        if not is_ca:
            names = [x509.DNSName("localhost"), x509.IPAddress(ip_address(_HOST))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(authority, hashes.SHA384())

    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(certificate(issuer, authority, True).public_bytes(pem))
    (folder / "server.pem").write_bytes(certificate(subject, server, False).public_bytes(pem))
    _write_secret(folder / "server.key", server, serialization.PrivateFormat.PKCS8)


def make_node_key(path: Path) -> None:
    """A SuperNode's key in OpenSSH's format, and beside it, with .pub, its public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process listens."""
    end = time.monotonic() + _STARTING
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise InputError(f"{process.args!r} does not listen on port {port}.")


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    content = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _toml(value: str | int | float) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
