"""The scripts that make charts answer to the mouse: Vega, Vega-Lite and Vega-Embed, without a network."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version

from nestegg.errors import InputError
from nestegg.files import cache_folder, make_folder, write_atomically


def chart_scripts() -> str:
    """Return one script that sets `window.vegaEmbed`.

    Bundling it takes longer than training a small model, and the result depends on the library's version alone: it is
    kept in the user's cache.
    """
    kept = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeError):
        return kept.read_text(encoding="utf-8")
    import vl_convert

    made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(InputError):  # a cache that cannot be written is no reason to fail
        make_folder("cache", kept.parent)
        write_atomically(kept, made)
    return made
