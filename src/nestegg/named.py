"""What users write themselves and give by name: "module:Name" in configurations and plans."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from nestegg.errors import InputError, reason

_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_named(text: str) -> bool:
    """Return whether a word has the form "module:Name"; nothing is imported.

    >>> is_named("my_schedules:Steps"), is_named("spend-as-you-go")
    (True, False)
    """
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


def load_object(field: str, text: str, folder: Path | str | None = None) -> Callable[..., Any]:
    """Import a class or function by "module:Name".

    Args:
        field: what the text was given for; errors begin with it.
        text: of the form "module:Name".
        folder: where the module may lie; it is put on Python's path, last, and stays there.

    Raises:
        InputError: it is not of that form, does not import, has no such name, or cannot be called.

    >>> load_object("privacy.method", "fractions:Fraction")(1, 2)
    Fraction(1, 2)
    """
    if not is_named(text):
        raise InputError(f"{field} = {text!r} must have the form 'module:Name'.")
    module_name, _, name = text.partition(":")
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        found: Any = import_module(module_name)
    except (Exception, SystemExit) as error:  # a module of somebody else may do anything
        raise InputError(f"{field} = {text!r} cannot be imported: {reason(error)}.") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{field} = {text!r}: the module {module_name!r} has no {name!r}.")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{field} = {text!r} must be a class or a function, not {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def called(field: str, text: str, folder: Path | str | None, *arguments: Any) -> Any:
    """Import a function by "module:function" and call it; whatever it raises is one sentence."""
    function = load_object(field, text, folder)
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:  # code of somebody else may do anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": .")
        raise InputError(f"{field} = {text!r} raised {reason}.") from error
