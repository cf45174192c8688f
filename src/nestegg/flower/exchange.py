"""Messages out, replies in: one at a time, so that memory does not grow with the cohort, and without long pauses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid
from httpx import HTTPError

from nestegg.errors import InputError

_LONGEST_PAUSE = 1.0  # seconds; Flower's own is 3


def push(grid: Grid, messages: Sequence[Message]) -> dict[str, Message]:
    """Send messages; returns those that were accepted, by their numbers.

    Raises:
        InputError: none was.
    """
    if not messages:
        return {}
    accepted = {number for number in grid.push_messages(list(messages)) if number}
    if not accepted:
        raise InputError("the SuperLink accepts no message: its log says why.")
    return {message.metadata.message_id: message for message in messages if message.metadata.message_id in accepted}


def pull(grid: Grid, number: str) -> Message | None:
    """The reply to a message, if it is there.

    A reply says itself what it answers, and its sender may lie: it counts as the answer to the message asked for. One
    that cannot be read is gone.
    """
    try:
        return next(iter(grid.pull_messages([number])), None)
    except HTTPError:
        raise
    except Exception:  # Flower parses what a stranger has written
        return None


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> Iterator[tuple[str, Message]]:
    """Send messages and yield the replies as they come, with the numbers of what they answer.

    Ends when all are there or the time is over. Who never answers is simply missing, and an answer after the time is
    never seen.
    """
    waiting = sorted(push(grid, messages))
    end, pause = time.monotonic() + timeout, 0.05
    while waiting:
        silent = []
        for number in waiting:
            reply = pull(grid, number)
            if reply is None:
                silent.append(number)
            else:
                yield number, reply
        pause = 0.05 if len(silent) < len(waiting) else min(2.0 * pause, _LONGEST_PAUSE)
        waiting = silent
        if not waiting or time.monotonic() >= end:
            return
        time.sleep(min(pause, max(end - time.monotonic(), 0.0)))
