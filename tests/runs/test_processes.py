"""Processes of a pool, interrupted before they are at work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal
if __name__ == "__mp_main__":  # a process of the pool, which has just begun
    os.kill(os.getpid(), signal.SIGINT)
if __name__ == "__main__":
    from concurrent.futures.process import BrokenProcessPool
    from nestegg.runs.processes import as_done
    try:
        print(list(as_done(abs, [-1, -2], 2)))
    except BrokenProcessPool:
        print("interrupted")
"""


@pytest.mark.slow
def test_an_interrupt_while_processes_start_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
