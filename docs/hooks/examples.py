"""Examples in docstrings as blocks of code: called by griffe, which reads the sources for mkdocstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe

# From a prompt to the next empty line, at one indentation.
_EXAMPLE = re.compile(r"(?:(?<=\n)|\A)( *)>>> .*(?:\n(?! *\n).+)*")


class FencedExamples(griffe.Extension):
    """Puts doctests between fences: Markdown would read prompts as quotations and lists of numbers as links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of whatever griffe has read."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""Return a docstring with its examples as blocks of code.

    >>> fenced("Return 1.\n\n>>> 1\n1\n\nAnd so on.")
    'Return 1.\n\n```pycon\n>>> 1\n1\n```\n\nAnd so on.'
    """
    return _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
