"""All that a training's results depend on, but for data and clients, by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nestegg.training.local import LocalTraining
from nestegg.training.loop import Federation
from nestegg.training.mechanics import Mechanics
from nestegg.training.performance import Performance


def values_of(federation: Federation, version: str) -> dict[str, Any]:
    """Return all that a run's results depend on, but for data and clients, by name.

    Functions count by their names, objects by their values: whoever changes what one does says so by another version.
    """
    first = federation.start().model.detach().cpu().contiguous()
    shapes = [[name, *shape] for name, shape in zip(federation.layout.names, federation.layout.shapes, strict=True)]
    return {
        "plan": federation.plan.digest,
        "layout": hashlib.sha256(json.dumps(shapes).encode()).hexdigest(),
        "weights": hashlib.sha256(first.numpy().tobytes()).hexdigest(),
        "version": version,
        "rates": list(federation.rates),
        **settings_of(federation.local, federation.mechanics, federation.performance),
    }


def settings_of(local: LocalTraining, mechanics: Mechanics, performance: Performance) -> dict[str, Any]:
    """All settings by name; of performance, what changes results."""
    return {**_flat("local", local), **_flat("mechanics", mechanics), "precision": performance.precision}


def _flat(name: str, value: Any) -> dict[str, Any]:
    """Return a value by name as JSON knows it, the fields of a dataclass each by its own; a function is its name."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = (_flat(f"{name}.{one.name}", getattr(value, one.name)) for one in fields(value))
        return {key: plain for part in parts for key, plain in part.items()}
    if value is None or isinstance(value, str | int | float):
        return {name: value}
    if callable(value):
        return {name: _name_of(value)}
    if isinstance(value, tuple | list) and all(isinstance(one, int | float) for one in value):
        return {name: list(value)}  # a curve of learning rates
    return {name: repr(value)}


def _name_of(function: Callable[..., Any]) -> str:
    """Return how a function, or what it is partially applied to, is called."""
    if isinstance(function, partial):
        given = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in sorted(function.keywords.items()))]
        return f"{_name_of(function.func)}({', '.join(given)})"
    if hasattr(function, "__qualname__"):
        return f"{function.__module__}.{function.__qualname__}"
    kind = type(function)
    return f"{kind.__module__}.{kind.__qualname__}{{{', '.join(_values(function))}}}"


def _values(one: Any) -> Iterator[str]:
    """Yield what an object with parameters, such as a loss, consists of: plain values, and a digest of tensors."""
    parts = dict(one.named_modules()) if isinstance(one, nn.Module) else {"": one}
    for path, part in parts.items():
        for name, value in sorted(getattr(part, "__dict__", {}).items()):
            if not name.startswith("_") and isinstance(value, str | int | float | tuple | list | None):
                yield f"{path + '.' if path else ''}{name}={value!r}"
    tensors = one.state_dict() if isinstance(one, nn.Module) else getattr(one, "__dict__", {})
    for name, value in tensors.items():
        if isinstance(value, Tensor):
            content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            digest = hashlib.sha256(f"{value.dtype} {tuple(value.shape)}\n".encode() + content).hexdigest()
            yield f"{name}={digest[:16]}"
