"""What is generated of the documentation says what the program does, and cannot leave anything out."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from docs.hooks import api, commands, configuration, fields, formats
from docs.hooks.examples import fenced
from docs.hooks.site import MAKERS, on_page_markdown
from mkdocs.exceptions import PluginError
from pydantic import BaseModel

from nestegg.configuration.config import Config
from nestegg.schema import Section
from tests.conftest import Run

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def tables_below(model: type[BaseModel]) -> set[type[BaseModel]]:
    """Return a model and all that its fields may hold."""
    found = {model}
    for field in model.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= tables_below(kind)
    return found


def test_every_table_and_key_of_the_schema_is_listed() -> None:
    assert {*configuration.TABLES.values()} == tables_below(Config)
    page = configuration.configuration()
    for model in configuration.TABLES.values():
        for name in model.model_fields:
            assert f"| `{name}` |" in page
    assert "| `rounds` | whole number | `25` | how many rounds, T |" in page
    assert '| `clipping` | `per-layer`, `flat` | `"per-layer"` |' in page


def test_a_key_without_a_sentence_fails_and_a_sentence_without_a_key() -> None:
    class Table(Section):
        known: int = 1
        forgotten: str = ""

    with pytest.raises(PluginError, match="here: forgotten: every field needs a sentence"):
        fields.table("here", fields.fields_of(Table), {"known": "it is."})
    with pytest.raises(PluginError, match="here: gone"):
        fields.table("here", fields.fields_of(Table), {"known": "", "forgotten": "", "gone": ""})


def test_choices_are_those_that_the_program_accepts(run: Run, tmp_path: Path) -> None:
    for section, keys in configuration.choices().items():
        for key in {*keys} - {"dataset", "name", "loss"}:  # which plans do not need
            groups = '[[privacy.groups]]\nname = "a"\nclients = 4\nepsilon = 9.0\n'
            file = tmp_path / f"{section}-{key}.toml"
            file.write_text(f'[{section}]\n{key} = "no-such-word"\n\n{groups}')
            done = run("plan", file)
            assert (done.code, "no-such-word" in done.err) == (2, True), (section, key, done)
            for word in {*keys[key]} - {"…"}:
                assert word in done.err


def test_every_command_and_option_is_listed(run: Run) -> None:
    page = commands.commands()
    for line in re.findall(r"^│ (\w[\w-]*)  ", run("--help").out, re.MULTILINE):
        assert f"nestegg {line}\n" in page
    for option in re.findall(r"--[\w-]+", run("run", "--help").out):
        assert option == "--help" or f"`{option}`" in page
    assert "### nestegg ledger budgets import" in page


def test_every_public_name_is_documented_or_the_build_fails() -> None:
    page = api.api()
    assert "::: nestegg.planning.methods.plan\n    options:\n      heading: nestegg.plan" in page
    module = SimpleNamespace(__name__="nestegg", silent=lambda: None)
    with pytest.raises(PluginError, match=r"nestegg\.silent is public and has no docstring"):
        api.check_documented(module, ["silent"])

    class Class:
        """A class."""

        def method(self) -> None: ...

    with pytest.raises(PluginError, match=r"nestegg\.Class\.method"):
        api.check_documented(SimpleNamespace(__name__="nestegg", Class=Class), ["Class"])


def test_a_name_in_no_part_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nestegg.__all__", ["Budget", "Invented"])
    with pytest.raises(PluginError, match="Invented"):
        api.api()


def test_marks_are_replaced_and_unknown_ones_refused() -> None:
    marked = {
        name for page in PAGES.parent.rglob("*.md") for name in re.findall(r"<!-- generated: (\S+)", page.read_text())
    }
    assert marked == {*MAKERS}
    assert "| `quantile` |" in on_page_markdown("<!-- generated: record side -->\n")
    with pytest.raises(PluginError, match="must be one of configuration"):
        on_page_markdown("<!-- generated: nothing -->\n")


def test_every_format_is_on_the_page() -> None:
    page = (PAGES / "file-formats.md").read_text()
    for name in formats.RECORDS:
        assert f"<!-- generated: record {name} -->" in page
    assert "### `charges`" in formats.ledger()


def test_examples_become_code() -> None:
    assert fenced("Say.\n\n    >>> f(\n    ...     1)\n    [1]\n\nMore.") == (
        "Say.\n\n    ```pycon\n    >>> f(\n    ...     1)\n    [1]\n    ```\n\nMore."
    )
    assert fenced("No example here.") == "No example here."
