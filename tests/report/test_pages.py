"""Pages as a reader meets them: in a real browser, where there is one, and as text everywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import altair as alt
import pytest

from nestegg.configuration.config import load_config
from nestegg.experiments.cells import Store
from nestegg.experiments.definition import load
from nestegg.experiments.outcomes import outcome_of
from nestegg.experiments.pages import write_outcomes
from nestegg.experiments.runner import run_cells
from nestegg.experiments.scales import configured
from nestegg.report.charts import Picture, save_charts
from nestegg.report.frame import Part, make_page
from nestegg.report.scripts import chart_scripts
from nestegg.runs import start_run
from tests.browser import Visit, find_browser, visit

DIGITS = Path(__file__).parents[2] / "examples" / "digits.toml"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run."""
    folder = tmp_path_factory.mktemp("report") / "run"
    config = load_config(DIGITS)
    start_run(config.model_copy(update={"training": config.training.model_copy(update={"rounds": 14})}), folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a table, a figure of curves, one of losses and one of spending."""
    folder = tmp_path_factory.mktemp("reproduction")
    store, outcomes = Store(folder), []
    for name in ("table-clients", "figure-accuracy", "figure-training-loss", "figure-spending"):
        experiment = load(name).with_seeds(1)
        experiment = experiment.model_copy(update={"columns": experiment.columns[:2]})
        cells = [experiment.cell(row, column) for row in experiment.shown_rows() for column in experiment.columns]
        run_cells([configured(cell, "smoke", 0) for cell in cells], store, 1, lambda *_: None)
        outcomes.append(outcome_of(name, experiment, "smoke", store))
    return write_outcomes(folder, outcomes)


def seen(page: Path, folder: Path, *flags: str) -> Visit:
    browser = find_browser()
    if browser is None:
        pytest.skip("no browser here: neither chromium nor google-chrome on the PATH")
    return visit(browser, page, folder / "profile", *flags)


def drawn(dom: str) -> int:
    return len(re.findall(r'<div id="chart-[^>]*data-drawn="interactive"', dom))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "reproduction"])
def test_every_chart_is_drawn_and_the_console_is_silent(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page: Path = request.getfixturevalue(name)
    visited = seen(page, tmp_path)
    assert visited.console == []
    wanted = page.read_text().count("<figure ")
    assert wanted >= 4
    assert drawn(visited.dom) == wanted
    main = visited.dom[visited.dom.index("<main>") : visited.dom.index("</main>")]
    assert main.count("<svg") == wanted  # each in the place of its drawing, not beside it
    for curve in re.findall(r'<svg[^>]*class="marks".*?</svg>', main, flags=re.DOTALL):
        assert "NaN" not in curve
        assert re.search(r'class="mark-(line|rect|symbol|rule) role-mark', curve)


@pytest.mark.slow
def test_the_browser_would_notice(tmp_path: Path) -> None:
    broken = Picture("<svg></svg>", {"mark": "line", "encoding": {"x": {"field": "x", "type": "nonsense"}}, "data": {}})
    (tmp_path / "page.html").write_text(make_page("Broken", "", [Part("One", "", [broken])]))
    visited = seen(tmp_path / "page.html", tmp_path)
    assert visited.console
    assert drawn(visited.dom) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "reproduction"])
def test_a_page_is_one_file_with_contents_and_no_links_out(name: str, request: pytest.FixtureRequest) -> None:
    page: Path = request.getfixturevalue(name)
    text = re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text)
    assert not re.findall(r"@import|url\((?!#)", text)
    links = re.findall(r'href="#([^"]+)"', text)
    assert len(links) >= 4
    assert all(f'id="{link}"' in text for link in links)
    assert text.index('class="summary"') < text.index("<nav") < text.index("<main>")
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert text.count("<thead>") == text.count("<table>") > 0  # heads come again on each printed sheet


@pytest.mark.slow
def test_a_charts_title_is_a_question_and_its_axes_have_names(reproduction: Path) -> None:
    sources = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', reproduction.read_text(), re.DOTALL)
    for source in sources:
        content = json.loads(source)
        assert content["title"].endswith("?")
        assert content["background"] == "transparent"
        axes = re.findall(r'"(?:x|y)": \{[^{}]*(?:\{[^{}]*\}[^{}]*)*"field": "(?:round|value|accuracy)"[^}]*', source)
        assert axes
        assert "title" in source


def test_scripts_are_bundled_once_and_do_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled: list[str] = []

    def bundle(snippet: str) -> str:
        bundled.append(snippet)
        return "let vega;"

    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [chart_scripts(), chart_scripts()] == ["let vega;"] * 2
    assert len(bundled) == 1
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [chart_scripts(), chart_scripts()] == ["let vega;"] * 2
    assert len(bundled) == 3


def test_text_in_a_page_cannot_end_a_script_or_become_html(tmp_path: Path) -> None:
    rows = alt.Data(values=[{"x": "</script><script>alert(1)</script>", "y": 1}])
    chart = alt.Chart(rows, title="Is it safe?").mark_bar().encode(x="x:N", y="y:Q")
    pictures = save_charts(tmp_path, {"chart": chart})
    page = make_page("<b>title</b>", "", [Part("<i>part</i>", "", list(pictures.values()))])
    assert "<script>alert" not in page
    assert "<b>title" not in page
    assert "<i>part" not in page
    assert {path.name for path in tmp_path.iterdir()} == {"chart.png", "chart.svg"}
