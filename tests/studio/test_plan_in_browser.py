"""The plan page in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import Visit, visit


def shown(visited: Visit, what: str = "method") -> None:
    """Wait until the page shows a query that contains something, other methods beside it."""
    visited.page.wait_for_selector(f'body[data-compared*="{what}"]')


def test_everything_follows_a_slider_and_a_link_restores_it(chromium: Any, link: str) -> None:
    with visit(chromium, link) as visited:
        page = visited.page
        shown(visited)
        before = page.locator("#chart-spending svg").inner_html()
        slider = page.locator(".group input[type=range]").first
        slider.focus()
        for _ in range(30):
            page.keyboard.press("ArrowLeft")
        epsilon = page.locator(".group [data-key=epsilon]").first.input_value()
        assert float(epsilon) == pytest.approx(5.01)
        shown(visited, f"group=34,{epsilon},careful")
        assert page.locator("#promises tbody tr").first.locator("td").nth(1).inner_text() == "5.01"
        assert page.locator("#chart-spending svg").inner_html() != before
        address = page.url
        assert "token" not in address
        page.goto(address.replace("rounds=25", "rounds=12"))
        shown(visited, "rounds=12")
        assert page.locator(".group [data-key=epsilon]").first.input_value() == epsilon
        assert page.locator("#rounds").input_value() == "12"
        assert visited.console == []
        host = link.split("?")[0]
        assert all(asked.startswith((host, "data:")) for asked in visited.requests)


def test_what_is_wrong_stands_beside_its_field(chromium: Any, link: str) -> None:
    with visit(chromium, link) as visited:
        page = visited.page
        shown(visited)
        page.fill("#delta", "2")
        page.wait_for_selector("#wrong-delta:not(:empty)")
        assert "strictly between 0 and 1" in page.locator("#wrong-delta").inner_text()
        assert page.locator("#delta").get_attribute("aria-invalid") == "true"
        page.fill("#delta", "1e-6")
        shown(visited, "delta=1e-6")
        assert page.locator("#wrong-delta").inner_text() == ""
        page.locator(".group [data-key=name]").nth(1).fill("careful")
        page.wait_for_selector(".group:nth-child(2) .wrong:not(:empty)")


def test_groups_are_added_moved_removed_and_given_by_a_target(chromium: Any, link: str) -> None:
    with visit(chromium, link) as visited:
        page = visited.page
        shown(visited)
        page.click("#add")
        shown(visited, "group 4".replace(" ", "+"))
        page.locator(".group").nth(3).locator("[data-move='-1']").click()
        shown(visited, "group+4&group=23,30,generous")
        page.drag_and_drop(".group:nth-child(1) .grip", ".group:nth-child(4) .ends")
        shown(visited, "generous&group=34,10,careful")
        page.locator(".group").nth(0).locator("[data-move='0']").click()
        page.wait_for_selector("#groups > :nth-child(3):last-child")
        page.fill("#wanted", "60")
        page.click("#find")
        first = page.locator("#promises tbody tr").first.locator("td").nth(3)
        first.filter(has_text="60.0 %").wait_for()
        page.click("#judge")
        page.locator("#verdict").filter(has_text="Nobody goes over budget").wait_for()
        assert visited.console == []


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (1400, True), (390, False)])
def test_the_page_is_for_everybody(chromium: Any, link: str, width: int, dark: bool) -> None:
    with visit(chromium, link, width=width, dark=dark) as visited:
        shown(visited)
        assert visited.findings() == []
        assert visited.overflowing() == []
        assert visited.console == []
