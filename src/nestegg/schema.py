"""Typed reading of what users write: TOML and JSON through pydantic, every error as one sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from nestegg.checks import suggestion
from nestegg.errors import InputError


class Section(BaseModel):
    """A table of a file: frozen, numbers are not strings, and an unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Model = TypeVar("Model", bound=Section)


def read(model: type[Model], content: Any, source: str) -> Model:
    """Content of the file `source` as a typed value, or one sentence about its first mistake."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{source}: {_sentence(model, _mistake(error.errors()))}") from None


def read_toml(model: type[Model], path: Path) -> Model:
    """A TOML file as a typed value, or one sentence about why it is none."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the file in it.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}.") from None
    return read(model, content, str(path))


def _mistake(details: list[ErrorDetails]) -> ErrorDetails:
    """The first; but a key that is missing is often there under a wrong name, and then that is the mistake."""
    first = details[0]
    unknown = (one for one in details if one["type"] == "extra_forbidden" and one["loc"][:-1] == first["loc"][:-1])
    return next(unknown, first) if first["type"] == "missing" else first


def _sentence(model: type[BaseModel], detail: ErrorDetails) -> str:
    parts = [part for part in detail["loc"] if part not in ("str", "list[float]")]  # pydantic's names for alternatives
    field = ".".join(str(part + 1) if isinstance(part, int) else part for part in parts)
    if detail["type"] == "extra_forbidden":
        return f"{field} is not a known key.{suggestion(detail['loc'][-1], _keys(model, detail['loc'][:-1]))}"
    if detail["type"] == "missing":
        return f"{field} is missing."
    value = repr(detail["input"])
    shown = value if len(value) <= 60 else f"{value[:57]}…"
    return f"{field or 'the file'} = {shown}: {detail['msg'][0].lower()}{detail['msg'][1:]}."


def _keys(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys that the table at `path` may hold."""
    for part in path:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
