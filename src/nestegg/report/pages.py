"""Who writes the page of a run: the process that trains, or one beside it.

A page needs a judge and an engine that draws charts. Both take longer to import and to start than a short run to
train, and need nothing of torch. So `nestegg run` forks a process before it imports torch:

pages = pages_beside(ahead)   # gets ready there, and does what can be done before the run ends
...
pages.write(content)          # waits for the rest
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nestegg.planning import Plan

_THREADED = frozenset({"torch", "vl_convert"})  # their threads are not there after a fork, and are waited for


@dataclass(frozen=True)
class PageContent:
    """What the page of a run is made of.

    Attributes:
        folder: of the run.
        plan: by which it trained.
        rounds: what each of them told.
        summary: of the run.
        labels: samples of each label at every client, which a simulation may show; others have none to give.
        clip_unit: of the plan's clip norms.
    """

    folder: Path
    plan: Plan
    rounds: list[dict[str, Any]]
    summary: dict[str, Any]
    labels: NDArray[np.int64] | None
    clip_unit: str


class Pages:
    """Writes pages of runs in this process.

    Args:
        as_files: write the charts of a page as PNG and SVG files, too: that takes long.
    """

    def __init__(self, *, as_files: bool = False) -> None:
        self.as_files = as_files

    def write(self, content: PageContent) -> None:
        """Write `report.html` into the folder of a run."""
        from nestegg.report.page import write_report  # charts take long to import, and are not needed before

        write_report(content, as_files=self.as_files)


class PagesBeside(Pages):
    """Writes pages of runs in a process of its own, which ends with this one.

    What fails there is done here, where its error is told.

    Args:
        ahead: what that process does before it is asked for a page.
        as_files: as in `Pages`.
    """

    def __init__(self, ahead: Callable[[], None], *, as_files: bool = False) -> None:
        super().__init__(as_files=as_files)
        context = get_context("fork")
        self._process, theirs = context.Pipe()
        context.Process(
            target=_serve, args=(Pages(as_files=as_files), ahead, self._process, theirs), daemon=True
        ).start()
        theirs.close()

    def write(self, content: PageContent) -> None:
        """Have the page written, and wait for it."""
        try:
            self._process.send(content)
            is_written = self._process.recv()
        except (EOFError, OSError):
            is_written = False
        if not is_written:
            super().write(content)


def pages_beside(ahead: Callable[[], None], *, as_files: bool = False) -> Pages:
    """Return what writes pages beside this process where a fork is safe, and what writes them here elsewhere."""
    threads = threading.active_count() > 1 or not _THREADED.isdisjoint(sys.modules)
    is_safe = sys.platform == "linux" and not threads and not current_process().daemon
    return PagesBeside(ahead, as_files=as_files) if is_safe else Pages(as_files=as_files)


def _serve(pages: Pages, ahead: Callable[[], None], ours: Connection, theirs: Connection) -> NoReturn:
    """In the other process: get ready, and write pages until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    ours.close()  # while it is open here, the parent's end would not be noticed
    try:
        ahead()
        while True:
            content = theirs.recv()
            try:
                pages.write(content)
            except Exception:
                theirs.send(False)
            else:
                theirs.send(True)
    finally:
        os._exit(0)  # in silence: what was inherited is the parent's to close, and errors are the parent's to tell
