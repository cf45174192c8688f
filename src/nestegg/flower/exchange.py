"""Messages out, replies in: one at a time, so that memory does not grow with the cohort, and without long pauses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from flwr.app import Message
from flwr.serverapp import Grid
from httpx import HTTPError

from nestegg.errors import InputError

_BATCH = 50  # messages in one request: a SuperLink may need 40 ms for each, and Flower's client waits for 30 s
_LONGEST_PAUSE = 1.0  # seconds; Flower's own is 3
_GRACE = 600.0  # seconds that a SuperLink takes replies after a round is over: clocks may differ by five minutes


def push(grid: Grid, messages: Sequence[Message]) -> dict[str, Message]:
    """Send messages, few at a time; returns those that were accepted, by their numbers.

    In a request that takes too long Flower's client sees a lost connection, and repeats it for ever.

    Raises:
        InputError: none was.
    """
    if not messages:
        return {}
    batches = [messages[start : start + _BATCH] for start in range(0, len(messages), _BATCH)]
    accepted = {number for batch in batches for number in grid.push_messages(list(batch)) if number}
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


def exchange(
    grid: Grid, messages: Sequence[Message], timeout: float, late: dict[str, float] | None = None
) -> Iterator[tuple[str, Message]]:
    """Send messages and yield the replies as they come, with the numbers of what they answer.

    Ends when all are there or the time is over. Who never answers is simply missing, and an answer after the time is
    never seen. It is taken from the SuperLink all the same, by the next exchange, and thrown away: Flower keeps what
    nobody takes until the run is over, and an update a round fills a disk.

    Args:
        grid: of the ServerApp.
        messages: one for each node that is asked.
        timeout: seconds to wait for replies.
        late: messages of earlier exchanges without a reply, and until when one may come; brought up to date here.
    """
    late = {} if late is None else late
    discard(grid, late)
    for message in messages:
        message.metadata.ttl = timeout + _GRACE
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
            break
        time.sleep(min(pause, max(end - time.monotonic(), 0.0)))
    late.update(dict.fromkeys(waiting, end + _GRACE))


def discard(grid: Grid, late: dict[str, float]) -> None:
    """Take the replies that came too late from the SuperLink, one at a time, and forget them.

    Args:
        grid: of the ServerApp.
        late: messages without a reply, and the moment after which the SuperLink takes none; those settled are removed.
    """
    for number, until in list(late.items()):
        over = time.monotonic() >= until  # asked for once more then: the SuperLink drops a message that has expired
        if pull(grid, number) is not None or over:
            del late[number]
