"""What a chart shows, in a sentence, for people who do not see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_KINDS = ("layer", "vconcat", "hconcat", "concat")
_MOST = 8  # curves that a sentence tells of


def gist(definition: dict[str, Any]) -> str:
    """Return a chart's title, and where each of its curves begins and ends.

    >>> rows = [{"round": 1, "loss": 2.5}, {"round": 9, "loss": 0.5}]
    >>> axes = {"x": {"field": "round"}, "y": {"field": "loss", "title": "test loss"}}
    >>> gist({"title": "How good?", "mark": "line", "data": {"values": rows}, "encoding": axes})
    'How good? test loss: 2.5 at round 1, 0.5 at round 9.'
    """
    title = definition.get("title", "")
    curves = list(dict.fromkeys(_curves(definition, [])))
    more = [f"And {len(curves) - _MOST} more curves."] if len(curves) > _MOST else []
    return " ".join([str(title["text"] if isinstance(title, dict) else title), *curves[:_MOST], *more])


def _curves(view: dict[str, Any], inherited: list[dict[str, Any]]) -> Iterator[str]:
    """Of a chart, and of all its layers and panels."""
    rows = view.get("data", {}).get("values", inherited)
    for part in (part for kind in _KINDS for part in view.get(kind, ())):
        yield from _curves(part, rows)
    mark, axes = view.get("mark"), view.get("encoding", {})
    if (mark["type"] if isinstance(mark, dict) else mark) == "line" and {"x", "y"} <= set(axes):
        series = axes.get("color", {}).get("field")
        for name in dict.fromkeys(row.get(series) for row in rows):
            curve = [row for row in rows if row.get(series) == name and axes["y"]["field"] in row]
            if curve:
                yield _curve(curve, axes, "" if name is None else f"{name}, ")


def _curve(rows: list[dict[str, Any]], axes: dict[str, Any], name: str) -> str:
    (x, y), label = (axes[axis]["field"] for axis in "xy"), axes["y"].get("title") or axes["y"]["field"]
    ends = ", ".join(f"{row[y]:.4g} at {x} {row[x]:g}" for row in (rows[0], rows[-1]))
    return f"{name}{label}: {ends}."
