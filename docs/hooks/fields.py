"""Tables of fields: what a value may be comes from the code, what it means from its docstring or from fields.toml."""

from __future__ import annotations

import inspect
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import griffe
from mkdocs.exceptions import PluginError
from pydantic import BaseModel

_SENTENCES = tomllib.loads((Path(__file__).parent / "fields.toml").read_text(encoding="utf-8"))
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything", None: "none"}


@dataclass(frozen=True)
class Field:
    """A row of a table: a name, what a value may be, and its default as it is written."""

    name: str
    kind: str
    default: str


def fields_of(model: type[BaseModel], choices: Mapping[str, Iterable[str]] | None = None) -> list[Field]:
    """Return the fields of a pydantic model.

    Args:
        model: any model.
        choices: words that a field may have, by its name; `…` stands for others beside them.
    """
    found = []
    for name, field in model.model_fields.items():
        if choices and name in choices:
            kind = ", ".join(one if one == "…" else f"`{one}`" for one in choices[name])
        else:
            kind = kind_of(field.annotation)
        found.append(Field(name, kind, "must be given" if field.is_required() else _written(field.default)))
    return found


def kind_of(annotation: Any) -> str:
    """Return what a value of a type is, in words.

    >>> kind_of(float | None), kind_of(str | list[float]), kind_of(Literal[1, 2])
    ('number', 'text or list of numbers', '1 or 2')
    """
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(kind_of(one) for one in inside if one is not type(None))
    if origin is Literal:
        return " or ".join(map(str, inside))
    if origin is list:
        return f"list of {_plural(inside[0])}"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "table"
    return _WORDS[annotation]


def _plural(annotation: Any) -> str:
    words = {"anything": "anything", "table": "tables", "text": "texts"}
    return words.get(kind := kind_of(annotation), f"{kind}s" if not kind.startswith("list") else "lists")


def _written(default: Any) -> str:
    if default is None or isinstance(default, BaseModel) or not isinstance(default, str | int | float | bool):
        return "–"
    return f"`{json.dumps(default)}`"


def meanings(name: str, kind: Any = None) -> dict[str, str]:
    """Return what every field of a class means: by its docstring, else by fields.toml."""
    documented = attributes_of(kind) if kind is not None else {}
    return documented or {key: str(text) for key, text in _SENTENCES.get(name, {}).items()}


def attributes_of(kind: type) -> dict[str, str]:
    """Return the attributes that a docstring describes, by name."""
    text = griffe.Docstring(inspect.getdoc(kind) or "")
    sections = griffe.parse_google(text, warnings=False)
    found = [one for part in sections if part.kind is griffe.DocstringSectionKind.attributes for one in part.value]
    return {one.name: " ".join(one.description.split()) for one in found}


def table(source: str, fields: Sequence[Field], sentences: Mapping[str, str]) -> str:
    """Return a table of Markdown.

    Raises:
        PluginError: a field has no sentence, or a sentence no field; the site is then not built.
    """
    names = {field.name for field in fields}
    if wrong := sorted(names ^ {*sentences}):
        raise PluginError(f"{source}: {', '.join(wrong)}: every field needs a sentence, every sentence a field.")
    has_defaults = any(field.default != "must be given" for field in fields)
    heads = ["key", "is", *(["default"] if has_defaults else []), "meaning"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for field in fields:
        default = [field.default] if has_defaults else []
        lines.append(_row([f"`{field.name}`", field.kind, *default, sentences[field.name].rstrip(".")]))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
