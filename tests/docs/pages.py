"""Pages that are run: their blocks in order, in one folder, with the output that they show."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ..conftest import Run
from .conftest import ROOT

_BLOCK = re.compile(r"(?:^<!-- within ([\d.]+) -->\n+)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.\w+)$", re.MULTILINE)
# Numbers, with a sign where none of a name's hyphens is meant; words; other signs.
_WORD = re.compile(r"(?<!\w)[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?|\d+(?:\.\d+)?(?:e[-+]\d+)?|\w+|[^\w\s]")
_ENDS = re.compile(r"\s+# exit code (\d+)$")


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        kind: its language. sh and python are run, text is what was printed before, console is not run; others are
            files.
        text: its content.
        within: how far numbers of a text may differ on another machine.
    """

    kind: str
    text: str
    within: float


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in docs/."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [Block(kind, content, float(within or 1e-9)) for within, kind, content in _BLOCK.findall(text)]


def file_of(block: Block) -> str | None:
    """Return the name of the file that a block is, by its first line."""
    found = _FILE.match(block.text)
    return None if found is None else found[1]


class Player:
    """Runs blocks: Python in one namespace, commands as a user types them, files under the names they begin with."""

    def __init__(self, run: Run) -> None:
        self._run, self._namespace, self.printed = run, dict[str, Any](), ""

    def play(self, page: str) -> None:
        """Run a whole page in this folder."""
        for block in blocks_of(page):
            if block.kind == "text":
                assert agrees(block.text, self.printed, block.within), (block.text, self.printed)
            elif block.kind == "console":  # needs an index of packages, or other machines
                continue
            elif name := file_of(block):
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_text(block.text, encoding="utf-8")
            elif block.kind == "python":
                with redirect_stdout(StringIO()) as out:
                    exec(compile(block.text, f"docs/{page}", "exec"), self._namespace)
                self.printed = out.getvalue()
            else:
                assert block.kind == "sh", block.kind
                self.printed = "".join(map(self._command, commands_in(block.text)))

    def _command(self, line: str) -> str:
        expected = int(found[1]) if (found := _ENDS.search(line)) else 0
        words = shlex.split(line, comments=True)
        if words[0] == "nestegg":
            done = self._run(*words[1:])
            assert done.code == expected, (line, done.out, done.err)
            return done.out + done.err
        called = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert called.returncode == expected, (line, called.stdout, called.stderr)
        return called.stdout + called.stderr


def commands_in(text: str) -> Iterator[str]:
    """The commands of a block, each on one line."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


def agrees(shown: str, printed: str, within: float) -> bool:
    """Return whether a text was printed, but for spaces; `…` stands for anything.

    >>> agrees("digest … has 3.10 of 4", "The digest 1ab2 has 3.1 of 4.", 1e-9), agrees("a 3", "a 4", 0.5)
    (True, False)
    """
    words, start = _words(printed), 0
    for part in shown.split("…"):
        wanted = _words(part)
        last = len(words) - len(wanted)
        found = (at for at in range(start, last + 1) if _alike(wanted, words[at : at + len(wanted)], within))
        if (at := next(found, None)) is None:
            return False
        start = at + len(wanted)
    return True


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _alike(wanted: list[str], found: list[str], within: float) -> bool:
    return all(one == other or _near(one, other, within) for one, other in zip(wanted, found, strict=True))


def _near(one: str, other: str, within: float) -> bool:
    try:
        return abs(float(one.replace(",", "")) - float(other.replace(",", ""))) <= within
    except ValueError:
        return False
