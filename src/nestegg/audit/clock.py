"""How long an audit may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from nestegg.errors import InputError


class Clock:
    """How long an audit may take, and whether somebody has stopped it.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        if not 0.0 < seconds < math.inf:
            raise InputError(f"seconds = {seconds!r} must be a finite number above 0.")
        self.started, self.seconds, self.stopped = time.monotonic(), float(seconds), False

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def until(self, share: float, tell: Callable[[float], None]) -> Callable[[int], bool]:
        """Return what trials ask whether to go on: until a share of all the time has passed."""

        def go_on(passes: int) -> bool:
            tell(min(self.passed / self.seconds, 1.0))
            return not self.stopped and self.passed < share * self.seconds

        return go_on

    def stop(self) -> None:
        """End the audit soon, with what was found so far."""
        self.stopped = True
