"""A link between two network namespaces on which packets wait, for kernels that have no `netem`. It takes root.

The two ends are TUN devices; a process of its own carries packets from one to the other, as late as it is told.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import select
import struct
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_SET_UP, _IS_TUN, _WITHOUT_HEADER = 0x400454CA, 0x0001, 0x1000  # of linux/if_tun.h
_LARGEST = 60_000  # bytes of a packet: few of them, so that carrying them costs little


def _opened(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _SET_UP, struct.pack("16sH", name.encode(), _IS_TUN | _WITHOUT_HEADER))
    return device


def _carry(ends: tuple[int, int], latency: Any) -> None:
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        until = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
        for end in select.select(ends, [], [], until)[0]:
            packet = os.read(end, _LARGEST + 100)
            waiting.append((time.monotonic() + latency.value, ends[end == ends[0]], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, packet = waiting.popleft()
            with suppress(OSError):  # an end that is down loses packets
                os.write(end, packet)


@contextmanager
def link(namespace: str, here: str, there: str, devices: tuple[str, str]) -> Iterator[Any]:
    """Connect this namespace with another, and give the latency one way, in seconds, as a `value` that may be set.

    Args:
        namespace: the other one, which is there.
        here: the address of this end.
        there: the address of the other, in the same network of 24 bits.
        devices: names of the two ends.
    """
    ends = (_opened(devices[0]), _opened(devices[1]))
    inside = ["ip", "netns", "exec", namespace]
    subprocess.run(["ip", "link", "set", devices[1], "netns", namespace], check=True)
    for place, address, device in (([], here, devices[0]), (inside, there, devices[1])):
        subprocess.run([*place, "ip", "addr", "add", f"{address}/24", "dev", device], check=True)
        subprocess.run([*place, "ip", "link", "set", device, "mtu", str(_LARGEST), "up"], check=True)
    context = multiprocessing.get_context("fork")
    latency = context.Value("d", 0.0)
    carrier = context.Process(target=_carry, args=(ends, latency), daemon=True)
    carrier.start()
    try:
        yield latency
    finally:
        carrier.terminate()
        carrier.join()
        for end in ends:
            os.close(end)
