"""Called by MkDocs: parts of pages that are generated, pages from outside of docs/, Markdown as Git hosts read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext
from tools import licences

from docs.hooks import api, commands, configuration, formats

ROOT = Path(__file__).parents[2]
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # of the repository's root
# What stands in the place of `<!-- generated: NAME -->` or `<!-- generated: NAME ARGUMENT -->` in a page.
MAKERS: dict[str, Callable[..., str]] = {
    "configuration": configuration.configuration,
    "commands": commands.commands,
    "api": api.api,
    "room": api.room,
    "record": formats.record,
    "statement": formats.statement,
    "ledger": formats.ledger,
    "licences": licences.of_all_extras,
}
_UP = re.compile(rf"\]\(((?:\.\./)*)\.\./({'|'.join(map(re.escape, PROJECT_PAGES))})\)")  # links out of docs/
_MARK = re.compile(r"^<!-- generated: (\S+)(?: (\S+))? -->$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie in the repository's root, with links as they must be beside the others."""
    for name in PROJECT_PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name.lower(), content=beside_docs(text)))
    return files


def on_page_context(context: TemplateContext, page: Page, **_: object) -> TemplateContext:
    """Give the wide tables of results the room of a page's contents, which are three headings."""
    if page.file.src_uri.startswith("results/"):
        page.meta["hide"] = ["toc"]
    return context


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with what is generated, as Python's Markdown must have it.

    >>> on_page_markdown("[report](../../SECURITY.md)")
    '[report](../security.md)'
    """
    markdown = _UP.sub(lambda link: f"]({link[1]}{link[2].lower()})", markdown)
    return _MARK.sub(_made, with_blank_lines(markdown))


def _made(mark: re.Match[str]) -> str:
    name, argument = mark.groups()
    if name not in MAKERS:
        raise PluginError(f"{mark.group()}: what is generated must be one of {', '.join(MAKERS)}.")
    return MAKERS[name](*([argument] if argument else []))


def beside_docs(text: str) -> str:
    """Return a page of the root with its links as seen from docs/.

    >>> beside_docs("[data](docs/data.md#folders), [changes](CHANGELOG.md), [home](README.md)")
    '[data](data.md#folders), [changes](changelog.md), [home](index.md)'
    """
    text = re.sub(r"\]\(docs/", "](", text).replace("](README.md)", "](index.md)")
    for name in PROJECT_PAGES:
        text = text.replace(f"]({name})", f"]({name.lower()})")
    return text


def with_blank_lines(text: str) -> str:
    r"""Return a page with empty lines around comments, where a table would be taken for a part of it.

    Git hosts see where a comment ends. Code stays as it is.

    >>> with_blank_lines("<!-- costs -->\n| a |\n<!-- /costs -->\n")
    '<!-- costs -->\n\n| a |\n\n<!-- /costs -->\n\n'
    """
    places, pieces = [match.span() for match in _CODE.finditer(text)], []
    end = 0
    for start, stop in [*places, (len(text), len(text))]:
        prose = re.sub(r"(?<=[^\n])\n(<!-- .* -->)$", r"\n\n\1", text[end:start], flags=re.MULTILINE)
        pieces += [re.sub(r"^(<!-- .* -->)\n", r"\1\n\n", prose, flags=re.MULTILINE), text[start:stop]]
        end = stop
    return "".join(pieces)
