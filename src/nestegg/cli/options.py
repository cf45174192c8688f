"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Where = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="Train on a Ray cluster: local, auto (the one that runs here), or host:port of its head.",
    ),
]
