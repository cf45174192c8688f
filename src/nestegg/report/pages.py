"""Where the page of a run is made: in the process that trains, or in one beside it.

A page needs a judge and an engine that draws charts. Both take longer to import and to start than a short run takes
to train, and need nothing of torch. So `nestegg run` forks a process before it imports torch:

pages = pages_beside(ahead)   # gets ready there, and does what can be done before the run ends
...
pages.write(content)          # waits for the rest
"""

from __future__ import annotations

import gc
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

from nestegg.files import write_all
from nestegg.planning import Plan

_THREADED = frozenset({"torch", "vl_convert"})  # their threads are not there after a fork, and are waited for
_PATIENCE = 60  # seconds


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
        write_all(content.folder, self.made(content).items())

    def made(self, content: PageContent) -> dict[str, str | bytes]:
        """Return the files of a page by name."""
        from nestegg.report.page import make_report  # charts take long to import, and are not needed before

        return make_report(content, as_files=self.as_files)


class PagesBeside(Pages):
    """Has the first page made by a process of its own, which ends with this one, and writes it.

    What is not made there is made here: if that process failed, or after a minute of waiting has ended, since a run
    that long can make its page itself.

    Args:
        ahead: what that process does before it is asked for a page.
        as_files: as in `Pages`.
    """

    def __init__(self, ahead: Callable[[], None], *, as_files: bool = False) -> None:
        super().__init__(as_files=as_files)
        context = get_context("fork")
        self._process, theirs = context.Pipe()
        arguments = (Pages(as_files=as_files), ahead, theirs, os.getpid())
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it is ignored there
        try:
            context.Process(target=_serve, args=arguments, daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def made(self, content: PageContent) -> dict[str, str | bytes]:
        """Return the files of a page, once they are made."""
        try:
            self._process.send(content)
            files: dict[str, str | bytes] = self._process.recv()
        except (EOFError, OSError):
            return super().made(content)
        return files


def pages_beside(ahead: Callable[[], None], *, as_files: bool = False) -> Pages:
    """Return what makes pages beside this process where a fork is safe, and what makes them here elsewhere."""
    threads = threading.active_count() > 1 or not _THREADED.isdisjoint(sys.modules)
    is_safe = sys.platform == "linux" and not threads and not current_process().daemon
    return PagesBeside(ahead, as_files=as_files) if is_safe else Pages(as_files=as_files)


def _serve(pages: Pages, ahead: Callable[[], None], theirs: Connection, parent: int) -> NoReturn:
    """In the other process: get ready, and make one page if it is asked for before long and before the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    gc.disable()  # there will be no second page
    try:
        ahead()
        for _ in range(_PATIENCE):
            if os.getppid() != parent:
                break
            if theirs.poll(1.0):
                theirs.send(pages.made(theirs.recv()))
                break
    finally:
        os._exit(0)  # in silence: what was inherited is the parent's to close, and errors are the parent's to tell
