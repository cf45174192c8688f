"""A real PostgreSQL server for tests: in a temporary folder, on a free loopback port, never as root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import psycopg

_ROLE = "nestegg"


def find_binaries() -> Path | None:
    """The folder with initdb and pg_ctl, where Debian or the PATH has them."""
    if found := shutil.which("initdb"):
        real = Path(found).resolve().parent
        if (real / "pg_ctl").exists():
            return real
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


class Server:
    """A server that can be stopped and started again."""

    def __init__(self, binaries: Path) -> None:
        self.binaries = binaries
        # The server refuses to run as root; nobody can read a folder of root's, so it gets its own.
        self._user: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
        self.folder = Path(tempfile.mkdtemp(prefix="nestegg-postgres-"))
        if self._user:
            shutil.chown(self.folder, **self._user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._call("initdb", "-D", "data", "-U", _ROLE, "--auth=trust", "-E", "UTF8", "--locale=C")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")  # else it writes every database to disk first, for minutes, and all of it is thrown away
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        # A server that was killed first syncs every file of every test's database, which may take minutes.
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        self._call("pg_ctl", "-D", "data", "-w", "-t", "300", "-l", "log", "-o", options, "start")

    def stop(self, mode: str) -> None:
        subprocess.run(
            [self.binaries / "pg_ctl", "-D", "data", "-w", "-m", mode, "stop"],
            cwd=self.folder,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._user,
        )

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"t{uuid4().hex}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._address(name)

    def _address(self, database: str) -> str:
        return f"postgresql://{_ROLE}@127.0.0.1:{self.port}/{database}"

    def _call(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.binaries / program, *arguments],
            cwd=self.folder,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **self._user,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")
