"""Pages of claims, and what is asked of changes to the mechanism, name tests and code that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "claims").glob("*.md"))
CLAIMS = [page for page in PAGES if page.name != "README.md"]
PARTS = ("Statement.", "Assumes.", "Why.", "Checked by", "Code")
NAMED = re.compile(r"`((?:tests|src|bench|docs)/[\w./-]+)(?:::([\w:]+))?`")
LINK = re.compile(r"\]\(([^)#]+)(?:#[\w-]+)?\)")


@cache
def names_in(path: Path) -> frozenset[str]:
    """The tests of a file, those of a class and of the class it inherits from as Class::test."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def named(text: str) -> list[tuple[str, str]]:
    """Files that a text names, and the tests in them."""
    return NAMED.findall(text)


@pytest.mark.parametrize("page", CLAIMS, ids=lambda page: page.stem)
def test_a_claim_has_all_parts_and_names_tests_and_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = [text.find(f"**{part}**") for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)
    tests, code = text[places[3] : places[4]], text[places[4] :]
    assert [test for _, test in named(tests) if test]
    assert [path for path, _ in named(code) if path.startswith("src/")]
    assert 20 <= len(text.splitlines()) <= 60  # one screen


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "docs/limitations.md"))],
    ids=lambda page: page.stem,
)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path, test in named(text):
        assert (ROOT / path).exists(), path
        assert not test or test in names_in(ROOT / path), f"{path}::{test}"
    for link in LINK.findall(text):
        assert "://" in link or (page.parent / link).exists(), link


def test_every_claim_is_in_the_index() -> None:
    index = (ROOT / "docs" / "claims" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", index)) == [page.name for page in CLAIMS]
