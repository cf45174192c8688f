"""Messages out, replies in: a few at a time, so that memory does not grow with the cohort, and without long pauses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

_AT_ONCE = 16  # replies in memory
_LONGEST_PAUSE = 1.0  # seconds; Flower's own is 3


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> Iterator[Message]:
    """Send messages and yield the replies as they come, until all are there or the time is over.

    A message's own id, in its metadata, is set when it is sent; a reply names the message it answers. Who never
    answers is simply missing, and an answer after the time is never seen.
    """
    if not messages:
        return
    waiting = {number for number in grid.push_messages(list(messages)) if number}
    end, pause = time.monotonic() + timeout, 0.05
    while waiting:
        found = 0
        order = sorted(waiting)
        for start in range(0, len(order), _AT_ONCE):
            for reply in grid.pull_messages(order[start : start + _AT_ONCE]):
                waiting.discard(reply.metadata.reply_to_message_id)
                found += 1
                yield reply
        if not waiting or time.monotonic() >= end:
            return
        pause = 0.05 if found else min(2.0 * pause, _LONGEST_PAUSE)
        time.sleep(min(pause, max(end - time.monotonic(), 0.0)))
