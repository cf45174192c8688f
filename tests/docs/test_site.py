"""The documentation builds without a warning, needs no network, and reads well in a browser."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ..browser import visit
from .conftest import ROOT, build

pytestmark = pytest.mark.slow


class _Loads(HTMLParser):
    """What a page loads by itself: scripts, styles, pictures, fonts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        key = {"script": "src", "img": "src", "iframe": "src", "link": "href"}.get(tag, "")
        if address := given.get(key):
            self.found.append(address)


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix("") for path in pages(site)}
    missing = {str(name) for name in written if name not in built and name.with_name("index") not in built}
    assert not missing
    assert {"changelog", "contributing", "security"} <= {str(name) for name in built}
    assert not list(site.rglob("*.py"))


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in pages(site):
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        for address in loads.found:
            assert not re.match(r"(\w+:)?//", address), (page, address)
            file = (page.parent / address.partition("?")[0].partition("#")[0]).resolve()
            assert page.name == "404.html" or file.exists(), (page, address)


def test_tables_and_lists_are_read_as_a_git_host_reads_them(site: Path) -> None:
    for page in pages(site):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"^(<p>)?\|.*\|(</p>)?$", re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL), re.M), page
        assert not re.search(r"<p>[^<]*\n- ", text), page


@pytest.mark.parametrize(
    ("link", "said"),
    [("[gone](gone.md)", "gone.md"), ("[home](index.md#gone)", "#gone"), ("![no](images/no.png)", "images/no.png")],
)
def test_a_broken_link_fails(link: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{link}\n")
    text = (ROOT / "mkdocs.yml").read_text().partition("nav:\n  -")[0]
    text = re.sub(r"^(hooks|extra_css|extra_javascript): .*$", "", text, flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(text)
    done = build(tmp_path / "site", root=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(("name", "width"), [("index", 400), ("recipes", 1280), ("claims/index", 400)])
def test_pages_open_from_the_disk(site: Path, chromium: Any, name: str, width: int) -> None:
    check_in_browser(chromium, site / f"{name}.html", width)


@pytest.mark.soak
@pytest.mark.parametrize("width", [400, 1280])
def test_every_page_opens_from_the_disk(site: Path, chromium: Any, width: int) -> None:
    for page in pages(site):
        if page.name != "404.html":  # which is for servers
            check_in_browser(chromium, page, width)


def check_in_browser(chromium: Any, page: Path, width: int) -> None:
    """A page asks for nothing from elsewhere, fits into a window of this width, and is accessible."""
    with visit(chromium, page, width=width) as seen:
        seen.page.wait_for_selector("h1")
        assert not seen.console, page
        assert all(address.startswith("file:") for address in seen.requests), page
        # The theme keeps its drawers beside the window until they are called.
        assert not [one for one in seen.overflowing() if "md-" not in one[:40]], page
        assert not seen.findings(), page


def test_search_finds_pages_without_a_server(site: Path, chromium: Any, tmp_path: Path) -> None:
    copied = shutil.copytree(site, tmp_path / "a site")
    with visit(chromium, copied / "index.html", dark=True) as seen:
        seen.page.locator(".md-search__input").click()
        seen.page.get_by_text("Type to start searching").wait_for()  # the index is read
        seen.page.keyboard.type("withdrawal")
        seen.page.wait_for_selector(".md-search-result__link")
        found = seen.page.locator(".md-search-result__link").evaluate_all("all => all.map(one => one.href)")
        assert any("ledger.html" in address or "lifetime-budgets.html" in address for address in found), found
        assert not seen.console
