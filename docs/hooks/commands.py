"""The command line, from the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from mkdocs.exceptions import PluginError
from typer.main import get_command

from nestegg.cli.program import app

_HELP = ("--help", "--install-completion", "--show-completion")


def commands() -> str:
    """Return a part for every command: how it is called, what it does, its arguments and options."""
    return "\n".join(_parts(get_command(app), ("nestegg",)))


def _parts(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    if not command.help:
        raise PluginError(f"command {' '.join(path)}: it has no help.")
    inside = getattr(command, "commands", None)
    if inside is None:
        yield _command(command, path)
        return
    if len(path) > 1:
        yield f"## nestegg {' '.join(path[1:])}\n\n{_prose(command.help)}\n"
    for name, one in inside.items():
        yield from _parts(one, (*path, name))


def _command(command: click.Command, path: tuple[str, ...]) -> str:
    context = click.Context(command, info_name=" ".join(path))
    shown = [one for one in command.params if not getattr(one, "hidden", False) and one.opts[0] not in _HELP]
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    level = "#" * min(len(path), 3)
    parts = [f"{level} {' '.join(path)}\n", f"```text\n{usage}\n```\n", f"{_prose(command.help or '')}\n"]
    if shown:
        rows = [_row(one, context, " ".join(path)) for one in shown]
        parts.append("\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _row(parameter: click.Parameter, context: click.Context, path: str) -> str:
    said = getattr(parameter, "help", None)
    if not said:
        raise PluginError(f"command {path}: {parameter.name} has no help.")
    if isinstance(parameter, click.Option):
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        value = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
        name = f"{names}{value}"
    else:
        name = parameter.make_metavar(context)
    default = "must be given" if parameter.required else _default(parameter)
    return f"| {_cell(name)} | {_cell(default)} | {_cell(said)} |"


def _default(parameter: click.Parameter) -> str:
    default = parameter.default
    is_plain = isinstance(default, str | int | float | Path) and not isinstance(default, bool) and default != ""
    return f"`{default}`" if is_plain else "–"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _prose(text: str) -> str:
    """Return help as paragraphs: lines of a terminal are joined."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))
