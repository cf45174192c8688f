"""Keys of [privacy] that only some methods read."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from nestegg.planning.registry import METHODS, Method, known_method

# Parameters of our planners that may stand in [privacy] itself, as they did before there was [privacy.planner].
PLANNER_KEYS = ("composition", "shape", "end_ratio", "memory", "influence", "spare")
# Keys that only one method reads. With any other of ours they are a mistake; `composition` has always been let pass.
_METHOD_KEYS = ("shape", "end_ratio", "memory", "influence", "spare", "adaptive")


def unread_keys(method: str) -> list[str]:
    """Return the keys that only other methods read.

    >>> unread_keys("shaped")
    ['memory', 'influence', 'spare', 'adaptive']
    """
    about = known_method("privacy.method", method)
    return [key for key in _METHOD_KEYS if not reads(about, key)] + (["composition"] if about.is_own else [])


def owner_of(key: str) -> str:
    """Return the method that reads a key.

    >>> owner_of("end_ratio")
    'shaped'
    """
    return next(one.written for one in METHODS.values() if reads(one, key))


def reads(method: Method, key: str) -> bool:
    """Return whether a method reads a key: a parameter of its planner, or of its controller."""
    if key == "adaptive":
        return method.learns_clip_norm
    return method.planner is not None and key in {one.name for one in fields(cast(Any, method.planner))}
