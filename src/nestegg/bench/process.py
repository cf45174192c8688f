"""A simulator at work in a process of its own: it is told what to do a line at a time, and watched."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from nestegg.bench.simulators import SCRIPTS, Mode, Simulator
from nestegg.errors import InputError

PATIENCE = 900.0  # seconds for an answer
_WATCH, _LOOK = 1.0, 0.05  # seconds for which memory is watched, at least, and between looks


class Process:
    """A simulator in one of its modes, on one piece of work."""

    def __init__(self, simulator: Simulator, mode: Mode, python: Path, work: Path) -> None:
        self.simulator, self.mode = simulator, mode
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [str(python), str(SCRIPTS / simulator.script), str(work), *mode.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            raise InputError(f"{simulator.name} cannot be started: {error}.") from None
        try:
            self.facts = self._answer()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def round(self, number: int) -> float:
        """Do a round with noise; the seconds it took."""
        return float(self._ask(round=number, noisy=True)["seconds"])

    def result(self, number: int, folder: Path, noisy: bool = False) -> NDArray[np.float32]:
        """Do a round, by default without noise; its result."""
        file = folder / "result.npy"
        self._ask(round=number, noisy=noisy, save=str(file))
        result: NDArray[np.float32] = np.load(file)
        return result

    def peak_memory(self, number: int) -> int:
        """Do a round again and again, and look how many bytes the process and its children hold together, at most."""
        peak, over = 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not over.is_set():
                peak = max(peak, _memory(self._process.pid))
                over.wait(_LOOK)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            began = time.monotonic()
            while time.monotonic() - began < _WATCH:
                self.round(number)
        finally:
            over.set()
            watcher.join()
        return peak

    def stop(self) -> None:
        """End it, and whatever it started; once is enough."""
        if self._errors.closed:
            return
        family = _children(self._process.pid)
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20.0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for member in family:
            with suppress(psutil.Error):
                member.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def _ask(self, **task: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it is gone, and its answer will not come
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._errors.seek(0)
            last = [text.strip() for text in self._errors.read().splitlines() if text.strip()]
            reason = (last[-1] if last else "no word of why") if ready else f"no answer in {PATIENCE:g} seconds"
            raise InputError(f"{self.simulator.name} ({self.mode.name}) failed: {reason}.")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise InputError(f"{self.simulator.name} ({self.mode.name}) failed: it said {line.strip()!r}.") from None
        return answer


def _children(pid: int) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        return children
    except psutil.Error:
        return []


def _memory(pid: int) -> int:
    """Bytes of a process and its children: each one's own, and what they share with anybody once."""
    own, shared = 0, 0
    for process in [pid, *(child.pid for child in _children(pid))]:
        with suppress(psutil.Error):
            memory = psutil.Process(process).memory_full_info()
            own, shared = own + memory.uss, max(shared, memory.rss - memory.uss)
    return own + shared
